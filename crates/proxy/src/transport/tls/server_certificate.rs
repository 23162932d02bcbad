//! A server certificate with its private key and OCSP response.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::settings::CertificateFiles;
use tidegate_limit::clock::unix_seconds;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_store::tls::pem::PemFile;
use tidegate_store::tls::pem::der::{Der, SEQUENCE};

/// A certificate that the gateway presents to clients, and when it expires.
#[derive(Debug)]
pub struct ServerCertificate {
    key: Arc<CertifiedKey>,
    /// If the OCSP response expires: when it does, and the key without the response.
    ocsp_end: Option<(i64, Arc<CertifiedKey>)>,
    /// Seconds since the Unix epoch.
    pub(super) not_before: i64,
    pub(crate) not_after: i64,
    /// Whether the certificate has a DNS name, so that clients can request it by server name.
    pub has_hosts: bool,
}

impl ServerCertificate {
    /// Reads the files of a certificate.
    ///
    /// # Errors
    /// A file cannot be read or parsed, or the key is not the certificate's.
    pub fn read(files: &CertificateFiles) -> Result<Self, TlsFileError> {
        let cert = ConfiguredFile { key: "cert", path: &files.cert };
        let key = ConfiguredFile { key: "key", path: &files.key };
        let chain = cert.certificates(&cert.read()?)?;
        let malformed = || cert.error("contains a malformed certificate");
        let leaf = chain.first().cloned().ok_or_else(malformed)?;
        let leaf = Certificate::parse(&leaf).ok_or_else(malformed)?;
        let Certificate { not_before, not_after, .. } = leaf;
        let has_hosts = leaf.hosts().next().is_some();
        let mut key = key.certified_key(chain, &key.read()?)?;
        let without_ocsp = key.clone();
        key.ocsp = files.ocsp.as_deref().map(read_ocsp).transpose()?;
        let next_update = key.ocsp.as_deref().and_then(super::ocsp::next_update);
        let ocsp_end = next_update.map(|end| (end, Arc::new(without_ocsp)));
        Ok(Self { key: Arc::new(key), ocsp_end, not_before, not_after, has_hosts })
    }

    /// Returns why clients reject the certificate now. The gateway presents it nevertheless: if it refused to start, the
    /// clients of all other certificates would suffer, too.
    pub fn not_valid_now(&self) -> Option<String> {
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        if self.not_after < now {
            return Some(format!("has expired on {}", format_date(self.not_after)));
        }
        (self.not_before > now).then(|| format!("is not valid before {}", format_date(self.not_before)))
    }

    /// Returns the key to present now: without its OCSP response if that has expired, because clients would reject it.
    pub(super) fn presented(&self) -> &Arc<CertifiedKey> {
        match &self.ocsp_end {
            Some((end, without_ocsp)) if *end < i64::try_from(unix_seconds()).unwrap_or(i64::MAX) => without_ocsp,
            _ => &self.key,
        }
    }

    /// Returns when the OCSP response expires, in seconds since the Unix epoch.
    pub(super) fn ocsp_not_after(&self) -> Option<i64> {
        self.ocsp_end.as_ref().map(|(end, _)| *end)
    }
}

#[cfg(test)]
impl From<CertifiedKey> for ServerCertificate {
    fn from(key: CertifiedKey) -> Self {
        Self { key: Arc::new(key), ocsp_end: None, not_before: 0, not_after: i64::MAX, has_hosts: true }
    }
}

/// Reads an OCSP response. Checks only its outer structure: clients verify the rest.
fn read_ocsp(path: &std::path::Path) -> Result<Vec<u8>, TlsFileError> {
    let file = ConfiguredFile { key: "ocsp", path };
    let response = file.read()?;
    let is_der = matches!(Der(&response).enter(SEQUENCE), Some(body) if !body.0.is_empty());
    if is_der { Ok(response) } else { Err(file.error("is not an OCSP response in DER")) }
}

/// Formats seconds since the Unix epoch for messages.
pub(super) fn format_date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}
