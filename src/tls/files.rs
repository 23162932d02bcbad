//! The files that TLS stands on, and whether they hold what they should. No message repeats what is in them.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::der::{Der, INTEGER, OCTETS, OID, SEQUENCE};
use super::read_bounded;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {fault}", path.display())]
pub(crate) struct BadFile {
    /// The key of the rule file that names it.
    pub(crate) key: &'static str,
    path: PathBuf,
    fault: String,
    /// How to correct it.
    pub(crate) help: Cow<'static, str>,
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
        let help = match self.key {
            "ca" => "PEM: the certificates of authorities, one at least",
            "key" => "PEM that is not encrypted: the key that the certificate was made for",
            "ocsp" => "DER, as an authority answers and `openssl ocsp -respout` writes it",
            _ => "PEM: the certificate that is shown, and after it those of who signed it",
        };
        BadFile { key: self.key, path: self.path.to_owned(), fault: fault.into(), help: help.into() }
    }

    /// What it holds.
    ///
    /// # Errors
    /// It cannot be read, or is none that should be.
    pub(crate) fn read(self) -> Result<Vec<u8>, BadFile> {
        read_bounded(self.path).map_err(|error| {
            let bad = self.bad(error.to_string());
            BadFile { help: error.help(self.path).map_or(bad.help.clone(), Into::into), ..bad }
        })
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
            Err(error) => Err(self.bad(format!("is not PEM: {}", in_words(&error)))),
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
        let private = key.clone_key();
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => self.bad("is not the key of the certificate"),
            error => match rsa_bits(&private) {
                Some(bits) if !RSA_BITS.contains(&bits) => {
                    let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
                    self.bad(format!("is an RSA key of {bits} bits, and {least} to {most} can be used"))
                }
                _ => self.bad(format!("cannot be used: {error}")),
            },
        })
    }
}

/// Without it, there is none.
const PEM: &[u8] = b"-----BEGIN ";

/// The authorities that the system trusts: none where it has no file of them.
#[cfg(feature = "gateway")]
pub(crate) fn of_system() -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    store
}

/// `rsaEncryption`.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// The keys of RSA that rustls takes with ring.
const RSA_BITS: RangeInclusive<usize> = 2048..=4096;

/// The library's own words show the line as numbers.
fn in_words(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a line `-----END ...-----` is missing",
        pem::Error::IllegalSectionStart { .. } => "a line `-----BEGIN ...-----` does not end as it should",
        pem::Error::Base64Decode(_) => "what is between its lines is not base64",
        _ => "a part of it is too long",
    }
}

/// How long a key of RSA is (RFC 8017, appendix A.1.2), also in PKCS #8; nothing of another kind.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    let mut body = Der(key.secret_der()).enter(SEQUENCE)?;
    body.value(INTEGER)?; // the version
    if let PrivateKeyDer::Pkcs8(_) = key {
        let kind = body.enter(SEQUENCE)?.value(OID)?;
        (kind == RSA).then_some(())?;
        body = Der(body.value(OCTETS)?).enter(SEQUENCE)?;
        body.value(INTEGER)?;
    } else if !matches!(key, PrivateKeyDer::Pkcs1(_)) {
        return None;
    }
    let modulus = body.value(INTEGER)?;
    let first = modulus.iter().position(|byte| *byte != 0)?;
    Some(8 * (modulus.len() - first) - modulus[first].leading_zeros() as usize)
}
