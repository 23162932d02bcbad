//! Parses certificates, revocation lists and private keys in PEM. Error messages never repeat the contents of a file.

use std::ops::RangeInclusive;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

pub mod der;

use self::der::{Der, INTEGER, OCTET_STRING, OID, SEQUENCE};
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};

/// Parses a PEM file that the rule file names.
pub trait PemFile {
    /// Parses the certificates in the text of the file.
    ///
    /// # Errors
    /// The text is not PEM, or contains no certificate.
    fn certificates(self, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError>;

    /// Parses the certificate authorities in the text of the file.
    ///
    /// # Errors
    /// The text is not PEM, contains no certificate, or one that is not an authority's.
    fn authorities(self, text: &[u8]) -> Result<RootCertStore, TlsFileError>;

    /// Parses the revocation lists in the text of the file.
    ///
    /// # Errors
    /// The text is not PEM, or contains no revocation list.
    fn revocation_lists(self, text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError>;

    /// Parses the private key in the text of the file, which must be the key of the first certificate in `chain`.
    ///
    /// # Errors
    /// The text contains no usable private key, or the key of another certificate.
    fn certified_key(self, chain: Vec<CertificateDer<'static>>, text: &[u8]) -> Result<CertifiedKey, TlsFileError>;
}

impl PemFile for ConfiguredFile<'_> {
    fn certificates(self, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
        sections(self, text, "contains no certificate")
    }

    fn authorities(self, text: &[u8]) -> Result<RootCertStore, TlsFileError> {
        let mut store = RootCertStore::empty();
        let added = self.certificates(text)?.into_iter().try_for_each(|certificate| store.add(certificate));
        added.map_err(|error| self.error(format!("contains a certificate that is not an authority's: {error}")))?;
        Ok(store)
    }

    fn revocation_lists(self, text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
        sections(self, text, "contains no revocation list")
    }

    fn certified_key(self, chain: Vec<CertificateDer<'static>>, text: &[u8]) -> Result<CertifiedKey, TlsFileError> {
        let key = PrivateKeyDer::from_pem_slice(text)
            .map_err(|_| self.error("contains no unencrypted private key in PEM"))?;
        let private = key.clone_key();
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => self.error("is not the key of the certificate"),
            error => match rsa_bits(&private) {
                Some(bits) if !RSA_BITS.contains(&bits) => {
                    let (min, max) = (RSA_BITS.start(), RSA_BITS.end());
                    self.error(format!("is an RSA key of {bits} bits; {min} to {max} bits are supported"))
                }
                _ => self.error(format!("cannot be used: {error}")),
            },
        })
    }
}

/// Parses all sections of a kind. `none` is the fault of a text without one.
fn sections<T: PemObject>(file: ConfiguredFile<'_>, text: &[u8], none: &str) -> Result<Vec<T>, TlsFileError> {
    if !text.windows(PEM_MARKER.len()).any(|window| window == PEM_MARKER) {
        return Err(file.error("is not PEM"));
    }
    match T::pem_slice_iter(text).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err(file.error(none)),
        Ok(found) => Ok(found),
        Err(error) => Err(file.error(format!("is not PEM: {}", describe(&error)))),
    }
}

/// The start of every PEM section.
const PEM_MARKER: &[u8] = b"-----BEGIN ";

/// Object identifier of `rsaEncryption`.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// Sizes of RSA keys that rustls supports with ring.
const RSA_BITS: RangeInclusive<usize> = 2048..=4096;

/// Describes a PEM error. The library's own messages print lines of the file as byte values.
fn describe(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a line `-----END ...-----` is missing",
        pem::Error::IllegalSectionStart { .. } => "a line `-----BEGIN ...-----` is malformed",
        pem::Error::Base64Decode(_) => "the text between two marker lines is not base64",
        _ => "a section is too long",
    }
}

/// Returns the size of an RSA key (RFC 8017, appendix A.1.2), also in PKCS #8. Returns `None` for other keys.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    let mut body = Der(key.secret_der()).enter(SEQUENCE)?;
    body.value(INTEGER)?; // the version
    if let PrivateKeyDer::Pkcs8(_) = key {
        let kind = body.enter(SEQUENCE)?.value(OID)?;
        (kind == RSA_ENCRYPTION).then_some(())?;
        body = Der(body.value(OCTET_STRING)?).enter(SEQUENCE)?;
        body.value(INTEGER)?;
    } else if !matches!(key, PrivateKeyDer::Pkcs1(_)) {
        return None;
    }
    let modulus = body.value(INTEGER)?;
    let first = modulus.iter().position(|byte| *byte != 0)?;
    Some(8 * (modulus.len() - first) - modulus[first].leading_zeros() as usize)
}
