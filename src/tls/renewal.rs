//! What is made of files, and made anew when they change.

use std::error::Error;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use super::certificate::Certificate;

/// TLS as it is spoken on one side, by what some files hold.
pub(crate) trait Renewable: Debug + Send + Sync {
    /// The files.
    fn files(&self) -> Vec<&Path>;

    /// Reads the files, for connections that are opened from now on.
    ///
    /// # Errors
    /// One of them cannot be used. What was in use stays so.
    fn renew(&self) -> Result<(), Box<dyn Error>>;

    /// The certificates that are shown to the other side.
    fn shown(&self) -> Vec<Shown>;
}

/// A certificate that is shown to the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(super) kind: Kind,
    pub(super) file: PathBuf,
    /// Seconds since the Unix epoch.
    pub(super) not_after: i64,
}

/// What a file holds that expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Certificate,
    OcspResponse,
}

impl Shown {
    /// The first certificate of a file; nothing if it tells nothing.
    pub(crate) fn first(file: &Path, chain: &[CertificateDer<'_>]) -> Option<Self> {
        let Certificate { not_after, .. } = Certificate::read(chain.first()?)?;
        Some(Self { kind: Kind::Certificate, file: file.to_owned(), not_after })
    }
}
