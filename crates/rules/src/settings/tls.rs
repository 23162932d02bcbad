//! Settings of TLS between clients and the gateway, and the certificates of all TLS connections.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use tidegate_limit::text::words::words;

/// TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenTls {
    /// At least one certificate. A client gets the one for the server name that it requests, or else the first one.
    pub certificates: Vec<CertificateFiles>,
    /// The oldest version that clients can use.
    pub min_version: TlsVersion,
    /// Whether clients present a certificate.
    pub client_auth: Option<ClientAuth>,
    /// Maximum TLS handshakes per second and client address, averaged over ten seconds. 0 means unlimited.
    pub max_handshake_rate: u32,
    /// How often the files are checked for changes. Not configurable in the rule file.
    #[serde(skip)]
    pub check_interval: Duration,
}

/// The PEM files of a certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, followed by its intermediate certificates.
    pub cert: PathBuf,
    /// The private key, not encrypted.
    pub key: PathBuf,
}

/// Default of [`ListenTls::max_handshake_rate`].
///
/// Allows a thousand clients behind one address to reconnect at once, and costs about 1% of a core with ECDSA keys.
pub const DEFAULT_MAX_HANDSHAKE_RATE: u32 = 100;

/// How often certificate files are checked. A longer delay would do: they are replaced days before they expire.
pub const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The files of one certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateFiles {
    /// The certificate, followed by its intermediate certificates.
    pub cert: PathBuf,
    /// The private key, unencrypted.
    pub key: PathBuf,
    /// The OCSP response (DER) that is sent with the certificate.
    pub ocsp: Option<PathBuf>,
}

words! {
    /// A version of TLS.
    pub enum TlsVersion, default Tls12 {
        /// TLS 1.2 and newer.
        Tls12 = "1.2",
        /// TLS 1.3 only.
        Tls13 = "1.3",
    }
}

/// Settings of client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientAuth {
    /// PEM file of the certificate authorities that may sign client certificates.
    pub ca: PathBuf,
    /// PEM file of the revocation lists (CRLs) of these authorities.
    pub crl: Option<PathBuf>,
    /// Whether clients without a certificate are rejected.
    pub required: bool,
}
