//! The files that TLS stands on, and whether they hold what they should. No message repeats what is in them.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {fault}", path.display())]
pub(crate) struct BadFile {
    /// The key of the rule file that names it.
    pub(crate) key: &'static str,
    path: PathBuf,
    fault: String,
}

/// A file, and the key of the rule file that names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'p> {
    pub(crate) key: &'static str,
    pub(crate) path: &'p Path,
}

impl Named<'_> {
    /// This is wrong with it.
    pub(crate) fn bad(self, fault: impl Into<String>) -> BadFile {
        BadFile { key: self.key, path: self.path.to_owned(), fault: fault.into() }
    }

    /// What it holds.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(self) -> Result<Vec<u8>, BadFile> {
        fs::read(self.path).map_err(|error| self.bad(format!("cannot be read: {error}")))
    }

    /// The certificates in its text, of which there is one at least.
    ///
    /// # Errors
    /// There is none, or what is there is not PEM.
    pub(crate) fn certificates(self, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadFile> {
        if !text.windows(PEM.len()).any(|part| part == PEM) {
            return Err(self.bad("is not PEM"));
        }
        let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
        match found {
            Ok(found) if found.is_empty() => Err(self.bad("holds no certificate")),
            Ok(found) => Ok(found),
            Err(error) => Err(self.bad(format!("is not PEM: {error}"))),
        }
    }

    /// The authorities in its text.
    ///
    /// # Errors
    /// There is none, or what is there is not PEM.
    pub(crate) fn authorities(self, text: &[u8]) -> Result<RootCertStore, BadFile> {
        let mut store = RootCertStore::empty();
        let added = self.certificates(text)?.into_iter().try_for_each(|certificate| store.add(certificate));
        added.map_err(|error| self.bad(format!("holds a certificate that is none of an authority: {error}")))?;
        Ok(store)
    }

    /// The private key in its text, which must be that of the first of these certificates.
    ///
    /// # Errors
    /// There is none, or it is another one's.
    pub(crate) fn key_of(self, chain: Vec<CertificateDer<'static>>, text: &[u8]) -> Result<CertifiedKey, BadFile> {
        let key = PrivateKeyDer::from_pem_slice(text)
            .map_err(|_| self.bad("holds no private key in PEM that is not encrypted"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => self.bad("is not the key of the certificate"),
            error => self.bad(format!("cannot be used: {error}")),
        })
    }
}

/// Without it, there is none.
const PEM: &[u8] = b"-----BEGIN ";
