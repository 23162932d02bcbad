//! The errors of a start and of a reload.

use std::io;

use tidegate_config::{ConfigLoadError, ListenAddress, Problems};
use tidegate_layer::layer::LayerError;
use tidegate_store::StoreOpenError;

/// The error of [`Gateway::start`](crate::Gateway::start).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayStartError {
    /// A listener cannot be opened, for example because its address is in use or does not belong to this machine.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: ListenAddress,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// systemd passes a socket whose address is not in the rule file.
    #[error("systemd passed a socket on {address}, but `listen`, `service` and `admin` do not have this address")]
    Unclaimed {
        /// The address of the socket.
        address: ListenAddress,
    },
    /// TLS cannot be set up: a certificate or key file has changed since the rule file was checked.
    #[error(transparent)]
    Tls(Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot be opened; see [`StoreOpenError`]. An unreachable store is not an error.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The layer cannot be built. A gateway opens its own store, so this does not occur today.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The operating system cannot start a thread, or the runtime cannot be created.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// The error of a reload. The gateway continues with its previous configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The rule file cannot be read or has errors.
    #[error(transparent)]
    File(#[from] ConfigLoadError),
    /// The new configuration needs something that cannot be opened: a listener, a certificate or the store.
    #[error(transparent)]
    Open(#[from] GatewayStartError),
    /// The store is at another address, where no Redis replies. The text is the cause.
    #[error("the new store does not reply: {0}")]
    StoreUnreachable(String),
    /// The access log cannot be opened.
    #[error(transparent)]
    AccessLog(Box<dyn std::error::Error + Send + Sync>),
    /// The domains that the control plane has sent do not fit the new rule file, for example because it has a domain with the
    /// same name.
    #[error("the domains of the control plane do not fit the rule file: {0}")]
    ControlPlane(Problems),
    /// The gateway was started without a rule file that can be read again.
    #[error("the rule file was read from standard input, so it cannot be read again")]
    NoFile,
    /// The gateway drains.
    #[error("the gateway drains")]
    Draining,
}
