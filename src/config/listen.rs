//! What holds for the clients of one address.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::tls::settings::ListenTls;

/// Where clients or operators connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenAddress {
    /// An address and a port; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// One entry of `listen:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Where to accept.
    pub address: ListenAddress,
    /// The mode of a Unix socket's file, which says who may connect.
    pub mode: u32,
    /// TLS, where it is spoken.
    pub tls: Option<ListenTls>,
    /// Whether HTTP/2 is spoken beside HTTP/1.1.
    pub http2: bool,
    /// Whether clients come through trusted proxies alone, which tell of them by the PROXY protocol.
    pub proxy_protocol: bool,
    /// Whether forwarded fields are trusted of a proxy whose PROXY header names no client.
    pub trust_unknown: bool,
    /// Connections beyond this many are turned away.
    pub max_connections: usize,
    /// Connections of one client beyond this many are turned away. A client is an address, or a network of
    /// `clients.ipv6_prefix`; trusted proxies are not counted, since all their clients come through them.
    pub max_connections_per_client: usize,
    /// Requests that one connection may bring.
    pub max_requests: u32,
    /// Requests that one connection of HTTP/2 may have open at a time.
    pub max_streams: u32,
    /// The longest a connection may take to send its first byte, and a request's head from its first byte on.
    pub header_timeout: Duration,
    /// The longest a connection may stay open between requests.
    pub idle_timeout: Duration,
    /// The longest that a body may wait for its client, in either direction, without any progress.
    pub body_timeout: Duration,
    /// The bytes that a client must send, or take, in a second of such waiting; in the mean over a `body_timeout`.
    pub min_rate: u64,
    /// Header fields of a request.
    pub max_fields: usize,
    /// Bytes of header fields, as they are written in HTTP/1.
    pub max_field_bytes: usize,
    /// Bytes of a target.
    pub max_target: usize,
}

/// Text that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// It is neither `IP:PORT` nor `unix:/path`.
    #[error("is not an address with a port")]
    Neither,
    /// A path that begins wherever the gateway was started.
    #[error("has no absolute path")]
    Relative,
    /// A path that the system does not take.
    #[error("has a path of more than {} bytes", ListenAddress::LONGEST_PATH)]
    TooLong,
}

// === impl ListenAddress ===

impl ListenAddress {
    /// The longest path of a Unix socket, in bytes (`sun_path`).
    pub const LONGEST_PATH: usize = 107;

    /// The address and the port, if it has any.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The path, if it is a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        match text.strip_prefix("unix:") {
            None => text.parse().map(Self::Tcp).map_err(|_| BadAddress::Neither),
            Some(path) => socket_path(path).map(Self::Unix),
        }
    }
}

/// The path of a Unix socket, behind `unix:`.
pub(super) fn socket_path(path: &str) -> Result<PathBuf, BadAddress> {
    match path {
        _ if !path.starts_with('/') || path.contains('\0') => Err(BadAddress::Relative),
        _ if path.len() > ListenAddress::LONGEST_PATH => Err(BadAddress::TooLong),
        _ => Ok(path.into()),
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// As it is written in the rule file.
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
    /// Who may connect to a Unix socket unless the rule file says otherwise: its user and its group.
    pub const DEFAULT_MODE: u32 = 0o660;
    /// Connections unless the rule file says otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 10_000;
    /// Connections of one client unless the rule file says otherwise: enough for the thousands behind one address of an
    /// office or a mobile network, and not enough for one address to take all places.
    pub const DEFAULT_MAX_CONNECTIONS_PER_CLIENT: usize = 1_000;
    /// Requests on a connection unless the rule file says otherwise: a client that stays for days meets other gateways,
    /// and one that goes on for ever does not keep one.
    pub const DEFAULT_MAX_REQUESTS: u32 = 10_000;
    /// Streams at a time unless the rule file says otherwise: the fewest that RFC 9113 section 6.5.2 recommends.
    pub const DEFAULT_MAX_STREAMS: u32 = 100;
    /// Time for a head unless the rule file says otherwise.
    pub const DEFAULT_HEADER_TIMEOUT: Duration = Duration::from_secs(10);
    /// Time between requests unless the rule file says otherwise; longer than the 60 s of common load balancers, so
    /// that it is they who close.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
    /// Time without progress of a body unless the rule file says otherwise: longer than the pauses of a bad network.
    pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);
    /// Bytes a second unless the rule file says otherwise: slower than any modem, as Kestrel has it.
    pub const DEFAULT_MIN_RATE: u64 = 240;
    /// Header fields unless the rule file says otherwise.
    pub const DEFAULT_MAX_FIELDS: usize = 100;
    /// Bytes of header fields unless the rule file says otherwise.
    pub const DEFAULT_MAX_FIELD_BYTES: usize = 16 * 1024;
    /// Bytes of a target unless the rule file says otherwise.
    pub const DEFAULT_MAX_TARGET: usize = 8 * 1024;

    /// What holds at `address` where the rule file says nothing else.
    pub fn new(address: ListenAddress) -> Self {
        Self {
            address,
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
