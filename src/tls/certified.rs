//! A certificate with its key, ready to be shown.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::files::{BadFile, Named};
use super::settings::CertificateFiles;
use crate::clock::unix_seconds;

/// What is shown to clients, and until when it is worth anything.
#[derive(Debug)]
pub(crate) struct Certified {
    key: Arc<CertifiedKey>,
    /// The end of its OCSP response, if it has one that ends, and the key without that response.
    ocsp_end: Option<(i64, Arc<CertifiedKey>)>,
    /// Seconds since the Unix epoch.
    pub(crate) not_after: i64,
    /// Whether it has a name that clients can ask for.
    pub(crate) has_hosts: bool,
}

impl Certified {
    /// Reads the files.
    ///
    /// # Errors
    /// The first that cannot be used: also one whose certificate no client accepts now.
    pub(crate) fn read(files: &CertificateFiles) -> Result<Self, BadFile> {
        let cert = Named { key: "cert", path: &files.cert };
        let key = Named { key: "key", path: &files.key };
        let chain = cert.certificates(&cert.read()?)?;
        let none = || cert.bad("holds a certificate that cannot be read");
        let leaf = chain.first().cloned().ok_or_else(none)?;
        let leaf = Certificate::read(&leaf).ok_or_else(none)?;
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        if leaf.not_after < now {
            return Err(cert.bad(format!("has expired on {}", date(leaf.not_after))));
        }
        if leaf.not_before > now {
            return Err(cert.bad(format!("is not valid before {}", date(leaf.not_before))));
        }
        let (not_after, has_hosts) = (leaf.not_after, leaf.hosts().next().is_some());
        let mut key = key.key_of(chain, &key.read()?)?;
        let without_ocsp = key.clone();
        key.ocsp = files.ocsp.as_deref().map(ocsp).transpose()?;
        let next_update = key.ocsp.as_deref().and_then(super::ocsp::next_update);
        let ocsp_end = next_update.map(|end| (end, Arc::new(without_ocsp)));
        Ok(Self { key: Arc::new(key), ocsp_end, not_after, has_hosts })
    }

    /// Returns what clients are sent now. An expired OCSP response is not: clients reject it.
    #[cfg(feature = "gateway")]
    pub(super) fn presented(&self) -> &Arc<CertifiedKey> {
        match &self.ocsp_end {
            Some((end, without_ocsp)) if *end < i64::try_from(unix_seconds()).unwrap_or(i64::MAX) => without_ocsp,
            _ => &self.key,
        }
    }

    /// Returns when its OCSP response expires, in seconds since the Unix epoch.
    #[cfg(feature = "gateway")]
    pub(super) fn ocsp_not_after(&self) -> Option<i64> {
        self.ocsp_end.as_ref().map(|(end, _)| *end)
    }
}

#[cfg(test)]
#[cfg(feature = "gateway")]
impl From<CertifiedKey> for Certified {
    fn from(key: CertifiedKey) -> Self {
        Self { key: Arc::new(key), ocsp_end: None, not_after: i64::MAX, has_hosts: true }
    }
}

/// Clients look closer.
fn ocsp(path: &std::path::Path) -> Result<Vec<u8>, BadFile> {
    let file = Named { key: "ocsp", path };
    let answer = file.read()?;
    let is_der = matches!(super::der::Der(&answer).enter(super::der::SEQUENCE), Some(body) if !body.0.is_empty());
    if is_der { Ok(answer) } else { Err(file.bad("holds no OCSP answer in DER")) }
}

/// As it is told to people.
pub(super) fn date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |moment| moment.to_string())
}
