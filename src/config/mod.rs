//! The rule file: from text to what the gateway runs on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::rule::Rules;
use crate::store::settings::StoreSettings;
use crate::upstream::settings::UpstreamSettings;

/// A rule file without mistakes, in the types the program uses.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listen: Vec<Listen>,
    /// Where operators connect; nowhere if `off`.
    pub admin: Option<SocketAddr>,
    /// Where the access log goes.
    pub access_log: AccessLog,
    /// Where buckets are kept.
    pub store: StoreSettings,
    /// Where requests go, by name.
    pub upstreams: BTreeMap<Arc<str>, UpstreamSettings>,
    /// Routes, limits and clients.
    pub rules: Rules,
}

/// One entry of `listen:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address to accept on; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Connections beyond this many are turned away.
    pub max_connections: usize,
    /// The longest a connection may take to send its first byte, and a request's head from its first byte on.
    pub header_timeout: Duration,
    /// The longest a connection may stay open between requests.
    pub idle_timeout: Duration,
}

/// Where one line for each request goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// The end of this file.
    File(PathBuf),
}

impl Listen {
    /// Connections unless the rule file says otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 10_000;
    /// Time for a head unless the rule file says otherwise.
    pub const DEFAULT_HEADER_TIMEOUT: Duration = Duration::from_secs(10);
    /// Time between requests unless the rule file says otherwise; longer than the 60 s of common load balancers, so
    /// that it is they who close.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
}
