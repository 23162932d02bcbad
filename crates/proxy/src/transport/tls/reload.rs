//! The interface of TLS configurations that are reloaded when their files change.

use std::error::Error;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use super::certificate::Certificate;

/// A TLS configuration that is loaded from files.
pub trait Reloadable: Debug + Send + Sync {
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
pub struct PresentedCertificate {
    pub(super) kind: FileKind,
    pub(super) file: PathBuf,
    /// Seconds since the Unix epoch.
    pub(super) not_after: i64,
    /// The number of seconds before its end from which the file expires soon. 0 for OCSP responses and revocation lists:
    /// they are valid for a few days only, so they always expire soon.
    pub(super) notice: i64,
}

/// The longest `notice` of a certificate.
const MAX_NOTICE: i64 = 14 * 24 * 60 * 60;

/// The purpose of a `PresentedCertificate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A certificate chain.
    Certificate,
    /// An OCSP response, stapled to the certificate.
    OcspResponse,
    /// The revocation lists of client certificates.
    RevocationLists,
}

impl PresentedCertificate {
    /// Describes the first certificate of a chain. Returns `None` if it cannot be parsed.
    pub(crate) fn from_chain(file: &Path, chain: &[CertificateDer<'_>]) -> Option<Self> {
        let Certificate { not_before, not_after, .. } = Certificate::parse(chain.first()?)?;
        Some(Self::certificate(file, not_before, not_after))
    }

    /// Describes a certificate. One that is valid for a few days is renewed later than others.
    pub(super) fn certificate(file: &Path, not_before: i64, not_after: i64) -> Self {
        let notice = MAX_NOTICE.min(not_after.saturating_sub(not_before) / 3);
        Self { kind: FileKind::Certificate, file: file.to_owned(), not_after, notice }
    }
}
