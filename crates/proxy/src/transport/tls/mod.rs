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

pub use self::reload::FileKind;
pub(crate) use self::reload::{PresentedCertificate, Reloadable};
pub use self::roots::system_roots;
pub use self::server_certificate::ServerCertificate;
pub use self::termination::{Termination, TlsSetupError, check_client_auth};
pub use self::watch::{CertificateFault, CertificateWatcher};
pub use tidegate_rules::settings::tls as settings;
