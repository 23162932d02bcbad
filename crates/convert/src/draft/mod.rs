//! The rule file that a conversion writes: typed items, each with its place in the source, and their YAML text.

mod file;
mod limit;
mod matcher;
mod names;
mod route;
mod upstream;
pub(crate) mod value;
mod writer;

use ipnet::IpNet;

pub(crate) use self::limit::{Algorithm, Interval, Limit, Mode, Tier, millis};
pub(crate) use self::matcher::Match;
use self::names::Names;
pub(crate) use self::names::valid_name;
pub(crate) use self::route::{LimitUse, Route};
pub(crate) use self::upstream::{Target, Upstream};
use self::value::{Map, Value};
use crate::report::Place;

/// The rule file that a conversion writes.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) listen: Vec<Listen>,
    pub(crate) clients: Clients,
    /// The store: an URL, or a map.
    pub(crate) store: Option<Value>,
    pub(crate) identities: Map,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) tiers: Vec<Tier>,
    /// The shared limits.
    pub(crate) limits: Vec<Limit>,
    /// The rate limit service. Empty without one.
    pub(crate) service: Map,
    pub(crate) routes: Vec<Route>,
    /// Other keys of the rule file, such as `requests` and `defaults`.
    pub(crate) more: Map,
    /// Files that the rule file names.
    pub(crate) more_files: Vec<NewFile>,
    /// The names of all items.
    pub(crate) names: ItemNames,
}

/// The names of the items of each kind.
#[derive(Debug, Default)]
pub(crate) struct ItemNames {
    upstreams: Names,
    limits: Names,
    routes: Names,
    tiers: Names,
    listeners: Names,
}

/// A listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listen {
    pub(crate) address: String,
    /// Other keys, such as `tls`.
    pub(crate) more: Map,
    pub(crate) place: Option<Place>,
}

/// How the rule file finds the address of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// `None` for the default of Tidegate, 64.
    pub(crate) ipv6_prefix: Option<u8>,
}

/// A file that the rule file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// The path, relative to the folder of the rule file.
    pub name: String,
    /// The text.
    pub text: String,
    /// Whether the text contains secrets, such as API keys: only its owner should read the file.
    pub is_secret: bool,
}

// === impl Draft ===

impl Draft {
    /// Returns an unused name for an upstream, similar to `wish`.
    pub(crate) fn upstream_name(&mut self, wish: &str) -> String {
        self.names.upstreams.unused(wish)
    }

    /// Returns an unused name for a shared limit, similar to `wish`. A limit of a route uses [`valid_name`].
    pub(crate) fn limit_name(&mut self, wish: &str) -> String {
        self.names.limits.unused(wish)
    }

    /// Returns an unused name for a route, similar to `wish`.
    pub(crate) fn route_name(&mut self, wish: &str) -> String {
        self.names.routes.unused(wish)
    }

    /// Returns an unused name for a tier, similar to `wish`.
    pub(crate) fn tier_name(&mut self, wish: &str) -> String {
        self.names.tiers.unused(wish)
    }

    /// Returns an unused name for a listener, similar to `wish`.
    pub(crate) fn listener_name(&mut self, wish: &str) -> String {
        self.names.listeners.unused(wish)
    }

    /// Returns the name of the upstream for routes whose source names no server. The first call adds it.
    pub(crate) fn unknown_upstream(&mut self) -> String {
        const URL: &str = "http://127.0.0.1:9000";
        let known = self.upstreams.iter().find(|upstream| upstream.is_unknown);
        if let Some(upstream) = known {
            return upstream.name.clone();
        }
        let name = self.upstream_name("app");
        let targets = vec![Target { url: URL.to_owned(), weight: 1 }];
        self.upstreams.push(Upstream { name: name.clone(), targets, is_unknown: true, ..Upstream::default() });
        name
    }
}
