//! What the rule file says about an upstream.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;

use crate::tls::settings::FILE_CHECK_INTERVAL;

/// One entry of `upstreams:`.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Its name in the rule file, metrics and logs.
    pub name: Arc<str>,
    /// Where to send requests, in turn; at least one.
    pub targets: Vec<Target>,
    /// What is spoken to them.
    pub protocol: Protocol,
    /// How TLS is spoken to those that speak it; without it, as [`UpstreamTls::default`] says.
    pub tls: Option<UpstreamTls>,
    /// The longest a connection may take to open.
    pub connect_timeout: Duration,
    /// The longest an answer may take to begin, once the request is on its way.
    pub response_timeout: Duration,
    /// The longest an upstream may send nothing of an answer that has begun.
    pub body_timeout: Duration,
    /// The most connections to each target, in use or idle; with HTTP/2, requests at a time. Each worker has its share, and at least one. A client has
    /// another only while it holds fewer than are free.
    pub max_connections: usize,
    /// The most requests that wait for a connection to each target. Each worker has its share.
    pub queue: usize,
    /// The longest a request waits for one.
    pub queue_timeout: Duration,
}

/// One of the places that serve an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `http://host:port`; names are resolved for each new connection.
    Http(Authority),
    /// `https://host:port`, likewise.
    Https(Authority),
    /// `unix:/path`: HTTP on a Unix socket.
    Unix(PathBuf),
    /// `builtin:echo`: this process answers with what it was sent.
    Echo,
}

/// What is spoken to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// What the target chooses over TLS (ALPN, RFC 7301); HTTP/1.1 in clear.
    Auto,
    /// HTTP/1.1: one request at a time on a connection.
    Http1,
    /// HTTP/2; in clear, the upstream is known to speak it ("prior knowledge", RFC 9113 section 3.3).
    Http2,
}

/// Whom TLS trusts, and what it shows of itself. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The authorities, one of which has signed the certificates of the targets; without it, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The name that their certificates have to have, and that they are asked for (SNI); without it, the host of each.
    pub server_name: Option<String>,
    /// What they are shown.
    pub identity: Option<TlsIdentity>,
    /// Whether their certificates are verified.
    pub verify: bool,
    /// How often the files are looked at. The rule file has no key for it.
    pub check_interval: Duration,
}

/// A certificate with its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, and after it those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

/// Writes the target as in the rule file.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(authority) => write!(f, "http://{authority}"),
            Self::Https(authority) => write!(f, "https://{authority}"),
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

impl Protocol {
    /// The word in the rule file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
        }
    }
}

impl UpstreamSettings {
    /// What holds for these targets where the rule file says nothing else.
    pub fn new(name: Arc<str>, targets: Vec<Target>) -> Self {
        Self {
            name,
            targets,
            protocol: Protocol::Auto,
            tls: None,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: Self::DEFAULT_RESPONSE_TIMEOUT,
            body_timeout: Self::DEFAULT_BODY_TIMEOUT,
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            queue: Self::DEFAULT_QUEUE,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
        }
    }

    /// How long to connect unless the rule file says otherwise.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
    /// How long to wait for an answer unless the rule file says otherwise.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long an upstream may be silent in the middle of an answer unless the rule file says otherwise.
    pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);
    /// The most connections to each target unless the rule file says otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 1024;
    /// The most requests that wait for one unless the rule file says otherwise.
    pub const DEFAULT_QUEUE: usize = 1024;
    /// How long they wait unless the rule file says otherwise.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

    /// What one of so many workers may have: together they have no more connections than all may have.
    pub(super) fn share(&self, workers: usize) -> Self {
        let (max_connections, queue) = ((self.max_connections / workers).max(1), self.queue.div_ceil(workers));
        Self { max_connections, queue, ..self.clone() }
    }
}
