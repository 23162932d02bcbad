//! TLS certificates: loads their files, reloads them when they change, and selects one for each client.
//!
//! rustls implements the protocol. This module reads and checks certificates (`certificate`), watches their files for
//! changes (`watch`), and selects a certificate by the requested server name (`resolver`).

mod certificate;
mod ocsp;
mod reload;
mod resolver;
mod revocation;
mod roots;
mod server_certificate;
mod subject;
mod termination;
#[cfg(test)]
mod tests;
mod tickets;
mod watch;

pub(crate) use self::reload::{FileKind, PresentedCertificate, Reloadable};
pub(crate) use self::roots::system_roots;
pub(crate) use self::server_certificate::ServerCertificate;
pub use self::termination::TlsSetupError;
pub(crate) use self::termination::{Termination, check_client_auth};
pub(crate) use self::watch::{CertificateFault, CertificateWatcher};
pub use tidegate_rules::settings::tls as settings;
