//! The settings of an upstream in the rule file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;

use serde::{Serialize, Serializer};

mod balance;
mod eject;
mod health;
mod retry;
mod timeouts;

pub use balance::{Balance, BalanceMethod, HashKey};
pub use eject::{Eject, EjectMode};
pub use health::{HealthRequest, HealthSettings};
pub use retry::{RetryMode, RetryOn, RetrySettings};
pub use timeouts::Timeouts;

use super::tls::{FILE_CHECK_INTERVAL, TlsIdentity};
use crate::json;
use tidegate_limit::text::words::words;

/// One entry of `upstreams:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamSettings {
    /// Its name in the rule file, metrics and logs.
    #[serde(skip)]
    pub name: Arc<str>,
    /// The targets; at least one.
    #[serde(serialize_with = "json::texts")]
    pub targets: Vec<Target>,
    /// The weights of the targets. A target without an entry has weight 1.
    pub weights: Vec<u32>,
    /// How requests are distributed to the targets.
    pub balance: Balance,
    /// When failing targets are ejected. `None` never ejects.
    pub eject: Option<Eject>,
    /// The time in which the share of a target grows after it has become usable.
    #[serde(rename = "slow_start_ms", serialize_with = "json::optional_millis")]
    pub slow_start: Option<Duration>,
    /// The HTTP version for the targets.
    pub protocol: Protocol,
    /// TLS settings for `https://` targets. `None` means [`UpstreamTls::default`].
    pub tls: Option<UpstreamTls>,
    /// The deadlines of a request.
    pub timeouts: Timeouts,
    /// Active health checks. `None` means no checks.
    pub health: Option<HealthSettings>,
    /// The retries of requests. `None` means that a request is sent to one target only.
    pub retry: Option<RetrySettings>,
    /// The maximum number of connections to each target, in use or idle; with HTTP/2, of concurrent requests. Each
    /// worker has its share, at least one. A client takes another connection only while it holds fewer than are free.
    pub max_connections: usize,
    /// The maximum number of requests that wait for a connection to each target. Each worker has its share.
    pub queue: usize,
    /// The longest time that a request waits for a connection.
    #[serde(rename = "queue_timeout_ms", serialize_with = "json::millis")]
    pub queue_timeout: Duration,
    /// The highest number of header fields in a response.
    pub max_fields: usize,
    /// The most bytes of the head of a response.
    pub max_field_bytes: usize,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `http://host:port`. Each address of a name is a target.
    Http(Authority),
    /// `https://host:port`. Each address of a name is a target.
    Https(Authority),
    /// `srv://_service._proto.name`, or the same with `srv+https://`. Each address of its SRV records is a target.
    Service(Service),
    /// `unix:/path`: HTTP on a Unix socket.
    Unix(PathBuf),
    /// `builtin:echo`: the gateway itself echoes the request.
    Echo,
}

/// A service with SRV records (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The name of the SRV records.
    pub name: Authority,
    /// Whether the gateway uses TLS.
    pub is_tls: bool,
}

words! {
    /// The protocol between the gateway and an upstream.
    pub enum Protocol, default Auto {
        /// Over TLS the protocol that the target selects (ALPN), in plaintext HTTP/1.1.
        Auto = "auto",
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2, in plaintext without negotiation (prior knowledge).
        Http2 = "http2",
    }
}

/// The trusted authorities and the client certificate of TLS connections. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamTls {
    /// The trusted certificate authorities. `None` means the authorities of the system.
    pub ca: Option<PathBuf>,
    /// The name that is sent (SNI) and that the target's certificate must contain. `None` means the host of each
    /// target.
    pub server_name: Option<String>,
    /// The client certificate that is presented.
    #[serde(rename = "cert", serialize_with = "only_cert")]
    pub identity: Option<TlsIdentity>,
    /// Whether the targets' certificates are verified.
    pub verify: bool,
    /// How often the files are checked for changes. The rule file has no key for it.
    #[serde(skip)]
    pub check_interval: Duration,
}

/// Serializes the certificate without its key.
fn only_cert<S: Serializer>(identity: &Option<TlsIdentity>, serializer: S) -> Result<S::Ok, S::Error> {
    identity.as_ref().map(|identity| &identity.cert).serialize(serializer)
}

impl Target {
    /// Returns `true` if the gateway uses TLS.
    pub fn uses_tls(&self) -> bool {
        matches!(self, Self::Https(_) | Self::Service(Service { is_tls: true, .. }))
    }

    /// Returns the authority for `Host` and TLS. Returns `None` if the target has no name.
    pub fn authority(&self) -> Option<Authority> {
        match self {
            Self::Http(authority) | Self::Https(authority) => Some(authority.clone()),
            Self::Service(service) => Some(service.host()),
            Self::Unix(_) | Self::Echo => None,
        }
    }
}

impl Service {
    /// Returns the host of the service, for `Host` and TLS: the name without `_service` and `_proto`.
    fn host(&self) -> Authority {
        let labels = self.name.as_str().split('.').skip_while(|label| label.starts_with('_')).collect::<Vec<_>>();
        labels.join(".").parse().unwrap_or_else(|_| self.name.clone())
    }
}

/// Writes the target as in the rule file.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(authority) => write!(f, "http://{authority}"),
            Self::Https(authority) => write!(f, "https://{authority}"),
            Self::Service(Service { name, is_tls: false }) => write!(f, "srv://{name}"),
            Self::Service(Service { name, is_tls: true }) => write!(f, "srv+https://{name}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Echo => f.write_str("builtin:echo"),
        }
    }
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { ca: None, server_name: None, identity: None, verify: true, check_interval: FILE_CHECK_INTERVAL }
    }
}

impl UpstreamSettings {
    /// Creates the settings for these targets, with all defaults of the rule file.
    pub fn new(name: Arc<str>, targets: Vec<Target>) -> Self {
        Self {
            name,
            targets,
            weights: Vec::new(),
            balance: Balance::default(),
            eject: Some(Eject::default()),
            slow_start: None,
            protocol: Protocol::Auto,
            tls: None,
            timeouts: Timeouts::default(),
            health: None,
            retry: Some(RetrySettings::default()),
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            queue: Self::DEFAULT_QUEUE,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
            max_fields: Self::DEFAULT_MAX_FIELDS,
            max_field_bytes: Self::DEFAULT_MAX_FIELD_BYTES,
        }
    }

    /// The connections to each target, of all workers together, if the rule file sets no `max_connections`.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 1024;
    /// The requests that may wait for a connection to each target if the rule file sets no `queue`.
    pub const DEFAULT_QUEUE: usize = 1024;
    /// The longest wait for a connection if the rule file sets no `queue_timeout`.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(1);
    /// The header fields of a response if the rule file sets no `max_fields`.
    pub const DEFAULT_MAX_FIELDS: usize = 100;
    /// The bytes of the head of a response if the rule file sets no `max_field_bytes`.
    pub const DEFAULT_MAX_FIELD_BYTES: usize = 64 * 1024;

    /// Returns the settings of one of `workers` workers, with its share of the connections and of the queue.
    pub fn share(&self, workers: usize) -> Self {
        let (max_connections, queue) = ((self.max_connections / workers).max(1), self.queue.div_ceil(workers));
        Self { max_connections, queue, ..self.clone() }
    }
}
