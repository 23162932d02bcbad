//! TLS certificates: loads their files, reloads them when they change, and selects one for each client.
//!
//! rustls implements the protocol. This module reads and checks the files (`files`, `certificate`), watches them for
//! changes (`watch`), and selects a certificate by the requested server name (`resolver`).

mod bounded;
#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tls")]
mod der;
#[cfg(feature = "tls")]
pub(crate) mod files;
#[cfg(feature = "tls")]
mod ocsp;
#[cfg(feature = "gateway")]
mod reload;
#[cfg(feature = "gateway")]
mod resolver;
#[cfg(feature = "tls")]
mod server_certificate;
pub mod settings;
#[cfg(feature = "tls")]
mod subject;
#[cfg(feature = "gateway")]
mod termination;
#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests;
#[cfg(feature = "gateway")]
mod tickets;
#[cfg(feature = "gateway")]
mod watch;

pub(crate) use self::bounded::{FileReadError, read_bounded, read_regular};
#[cfg(feature = "gateway")]
pub(crate) use self::bounded::{open_regular, read_at_most};
#[cfg(feature = "tls")]
pub(crate) use self::files::TlsFileError;
#[cfg(feature = "gateway")]
pub(crate) use self::reload::{PresentedCertificate, Reloadable};
#[cfg(feature = "tls")]
pub(crate) use self::server_certificate::ServerCertificate;
#[cfg(feature = "gateway")]
pub(crate) use self::termination::Termination;
#[cfg(feature = "gateway")]
pub use self::termination::TlsSetupError;
#[cfg(feature = "gateway")]
pub(crate) use self::watch::CertificateWatcher;
