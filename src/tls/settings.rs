//! What the rule file says of TLS to clients.

use std::path::PathBuf;
use std::time::Duration;

/// How a listener speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenTls {
    /// At least one. A client is shown the one that has the name it asks for, else the first.
    pub certificates: Vec<CertificateFiles>,
    /// Nothing older is spoken.
    pub min_version: TlsVersion,
    /// Whether clients show a certificate, too.
    pub client_auth: Option<ClientAuth>,
    /// TLS handshakes of one client in a second, as an average of ten seconds; 0 does not limit them.
    pub max_handshake_rate: u32,
    /// How often the files are looked at. The rule file has no key for it.
    pub look_every: Duration,
}

/// Handshakes in a second unless the rule file says otherwise: enough for a thousand clients behind one address that reconnect
/// at once, and about a hundredth of a core with ECDSA keys.
pub const DEFAULT_MAX_HANDSHAKE_RATE: u32 = 100;

/// How often files are looked at: they are replaced days before they must be.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The files of one certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and after it those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
    /// What its authority says of it (OCSP, in DER), which is shown with it.
    pub ocsp: Option<PathBuf>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// How clients show who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The authorities, in PEM, one of which has signed a client's certificate.
    pub ca: PathBuf,
    /// Whether a client without a certificate is turned away.
    pub required: bool,
}

impl TlsVersion {
    /// As it is written in the rule file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }
}
