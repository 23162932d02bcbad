//! The interface of TLS configurations that are reloaded when their files change.

use std::error::Error;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use super::certificate::Certificate;

/// A TLS configuration that is loaded from files.
pub(crate) trait Reloadable: Debug + Send + Sync {
    /// Returns the paths of the files.
    fn files(&self) -> Vec<&Path>;

    /// Loads the files again. New connections use the new configuration.
    ///
    /// # Errors
    /// A file cannot be used. The previous configuration stays active.
    fn reload(&self) -> Result<(), Box<dyn Error>>;

    /// Returns the files that expire: certificates and OCSP responses that are presented to peers, and revocation lists.
    fn presented(&self) -> Vec<PresentedCertificate>;
}

/// A certificate or OCSP response that is presented to peers, or a file of revocation lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresentedCertificate {
    pub(super) kind: FileKind,
    pub(super) file: PathBuf,
    /// Seconds since the Unix epoch.
    pub(super) not_after: i64,
}

/// The purpose of a [`PresentedCertificate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Certificate,
    OcspResponse,
    RevocationLists,
}

impl PresentedCertificate {
    /// Describes the first certificate of a chain. Returns `None` if it cannot be parsed.
    pub(crate) fn from_chain(file: &Path, chain: &[CertificateDer<'_>]) -> Option<Self> {
        let Certificate { not_after, .. } = Certificate::parse(chain.first()?)?;
        Some(Self { kind: FileKind::Certificate, file: file.to_owned(), not_after })
    }
}
