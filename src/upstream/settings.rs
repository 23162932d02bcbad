//! What the rule file says about an upstream.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;

/// One entry of `upstreams:`.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Its name in the rule file, metrics and logs.
    pub name: Arc<str>,
    /// Where to send requests, in turn; at least one.
    pub targets: Vec<Target>,
    /// The longest a connection may take to open.
    pub connect_timeout: Duration,
    /// The longest an answer may take to begin, once the request is on its way.
    pub response_timeout: Duration,
}

/// One of the places that serve an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `http://host:port`; names are resolved for each new connection.
    Http(Authority),
    /// `builtin:echo`: this process answers with what it was sent.
    Echo,
}

impl UpstreamSettings {
    /// How long to connect unless the rule file says otherwise.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
    /// How long to wait for an answer unless the rule file says otherwise.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
}
