//! Settings of a listener.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use tidegate_rules::json;
use tidegate_rules::settings::tls::ListenTls;

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address and a port. For port 0 the system selects a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// One entry of `listen:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listen {
    /// The address.
    #[serde(serialize_with = "json::text")]
    pub address: ListenAddress,
    /// The name for conditions of routes.
    #[serde(skip)]
    pub name: Option<Arc<str>>,
    /// The file mode of a Unix socket, which decides which users may connect.
    #[serde(skip)]
    pub mode: u32,
    /// TLS settings, or `None` for plaintext.
    pub tls: Option<ListenTls>,
    /// Whether to serve HTTP/2 in addition to HTTP/1.1.
    pub http2: bool,
    /// Whether each connection starts with a PROXY protocol header. Only trusted proxies may connect then.
    pub proxy_protocol: bool,
    /// Whether to trust forwarded fields if the PROXY protocol header names no client.
    pub trust_unknown: bool,
    /// The highest number of connections.
    pub max_connections: usize,
    /// The highest number of connections of one client. A client is an address, or an IPv6 network of
    /// `clients.ipv6_prefix`. Trusted proxies are not counted, since they carry the connections of many clients.
    pub max_connections_per_client: usize,
    /// The highest number of requests on one connection.
    pub max_requests: u32,
    /// The highest number of concurrent requests on an HTTP/2 connection.
    pub max_streams: u32,
    /// The longest time until the first byte of a connection, and from the first byte to the end of a request head.
    #[serde(rename = "header_timeout_ms", serialize_with = "json::millis")]
    pub header_timeout: Duration,
    /// The longest time that a connection stays open between requests.
    #[serde(rename = "idle_timeout_ms", serialize_with = "json::millis")]
    pub idle_timeout: Duration,
    /// The longest time that a body waits for its client without progress, in either direction.
    #[serde(rename = "body_timeout_ms", serialize_with = "json::millis")]
    pub body_timeout: Duration,
    /// The bytes per second that a client must send or receive while a body waits for it, averaged over `body_timeout`.
    #[serde(rename = "min_rate_bytes")]
    pub min_rate: u64,
    /// The highest number of header fields in a request.
    pub max_fields: usize,
    /// The largest size of all header fields together in their HTTP/1 form, in bytes.
    pub max_field_bytes: usize,
    /// The longest request target, in bytes.
    #[serde(rename = "max_target_bytes")]
    pub max_target: usize,
}

/// The reasons why a text is no listener address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is neither `IP:PORT` nor `unix:/path`.
    #[error("is not an address with a port")]
    Unrecognized,
    /// The path of the Unix socket is relative.
    #[error("has no absolute path")]
    Relative,
    /// The path of the Unix socket is too long for the system.
    #[error("has a path of more than {} bytes", ListenAddress::MAX_PATH_LENGTH)]
    TooLong,
}

// === impl ListenAddress ===

impl ListenAddress {
    /// The longest path of a Unix socket in bytes, from `sun_path`.
    pub const MAX_PATH_LENGTH: usize = 107;

    /// Returns the IP address and port. Returns `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns the path of a Unix socket. Returns `None` for other addresses.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// Parses an address in the syntax of the rule file.
    ///
    /// # Errors
    /// The text is neither an address with a port nor the path of a Unix socket.
    #[doc(hidden)]
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix("unix:") {
            None => text.parse().map(Self::Tcp).map_err(|_| AddressError::Unrecognized),
            Some(path) => socket_path(path).map(Self::Unix),
        }
    }
}

/// Parses the path of a Unix socket, without `unix:`.
pub(crate) fn socket_path(path: &str) -> Result<PathBuf, AddressError> {
    match path {
        _ if !path.starts_with('/') || path.contains('\0') => Err(AddressError::Relative),
        _ if path.len() > ListenAddress::MAX_PATH_LENGTH => Err(AddressError::TooLong),
        _ => Ok(path.into()),
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// Displays the address in the syntax of the rule file.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

// === impl Listen ===

impl Listen {
    /// The default of [`mode`](Self::mode): the socket's user and group may connect.
    pub const DEFAULT_MODE: u32 = 0o660;
    /// The default of [`max_connections`](Self::max_connections).
    pub const DEFAULT_MAX_CONNECTIONS: usize = 10_000;
    /// The default of [`max_connections_per_client`](Self::max_connections_per_client): enough for the users behind one
    /// address of an office or a mobile network, but too few for one address to use all connections.
    pub const DEFAULT_MAX_CONNECTIONS_PER_CLIENT: usize = 1_000;
    /// The default of [`max_requests`](Self::max_requests). Long-lived clients reconnect from time to time, which
    /// rebalances them over all gateways.
    pub const DEFAULT_MAX_REQUESTS: u32 = 10_000;
    /// The default of [`max_streams`](Self::max_streams): the minimum that RFC 9113 section 6.5.2 recommends.
    pub const DEFAULT_MAX_STREAMS: u32 = 100;
    /// The default of [`header_timeout`](Self::header_timeout).
    pub const DEFAULT_HEADER_TIMEOUT: Duration = Duration::from_secs(10);
    /// The default of [`idle_timeout`](Self::idle_timeout): longer than the 60 s of common load balancers, so that the
    /// load balancer closes idle connections first.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
    /// The default of [`body_timeout`](Self::body_timeout): longer than the pauses of an unreliable network.
    pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);
    /// The default of [`min_rate`](Self::min_rate), which is also Kestrel's: slower than any modem.
    pub const DEFAULT_MIN_RATE: u64 = 240;
    /// The default of [`max_fields`](Self::max_fields).
    pub const DEFAULT_MAX_FIELDS: usize = 100;
    /// The default of [`max_field_bytes`](Self::max_field_bytes).
    pub const DEFAULT_MAX_FIELD_BYTES: usize = 16 * 1024;
    /// The default of [`max_target`](Self::max_target).
    pub const DEFAULT_MAX_TARGET: usize = 8 * 1024;

    /// Creates a listener with the default settings.
    pub fn new(address: ListenAddress) -> Self {
        Self {
            address,
            name: None,
            mode: Self::DEFAULT_MODE,
            tls: None,
            http2: true,
            proxy_protocol: false,
            trust_unknown: false,
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            max_connections_per_client: Self::DEFAULT_MAX_CONNECTIONS_PER_CLIENT,
            max_requests: Self::DEFAULT_MAX_REQUESTS,
            max_streams: Self::DEFAULT_MAX_STREAMS,
            header_timeout: Self::DEFAULT_HEADER_TIMEOUT,
            idle_timeout: Self::DEFAULT_IDLE_TIMEOUT,
            body_timeout: Self::DEFAULT_BODY_TIMEOUT,
            min_rate: Self::DEFAULT_MIN_RATE,
            max_fields: Self::DEFAULT_MAX_FIELDS,
            max_field_bytes: Self::DEFAULT_MAX_FIELD_BYTES,
            max_target: Self::DEFAULT_MAX_TARGET,
        }
    }
}
