//! The limits of the test: all algorithms but `gcra` with `warm_up`, and all policies.

use std::time::Duration;

use super::checker::{Algorithm, Rule};

/// The behaviour of a limit while the store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Local,
    Deny,
    Allow,
}

/// A limit of the test.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub route: usize,
    pub name: &'static str,
    /// `true` if each client has its own bucket.
    pub per_client: bool,
    pub rule: Rule,
    /// Further keys of the rule file.
    extra_keys: &'static str,
}

/// A route of the test.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub name: &'static str,
    pub policy: Policy,
    /// Number of clients.
    pub clients: usize,
}

/// The route without a limit: its response times show the machine's own delay.
pub const UNLIMITED: usize = 17;

pub const ROUTES: [Route; 18] = [
    route("bucket", Policy::Local, 1),
    route("merged", Policy::Local, 1), // grants share log entries above 512 permits
    route("clients", Policy::Local, 6),
    route("smooth", Policy::Local, 1), // a burst becomes available again after more than an interval
    route("queued", Policy::Local, 1), // grants wait for their time slots
    route("calendar", Policy::Local, 1),
    route("segments", Policy::Local, 1),
    route("both", Policy::Local, 3),
    route("strict", Policy::Deny, 1),
    route("strict-smooth", Policy::Deny, 1),
    route("strict-queued", Policy::Deny, 1),
    route("strict-calendar", Policy::Deny, 1),
    route("strict-segments", Policy::Deny, 1),
    route("shared", Policy::Deny, 1), // in Redisson's format
    route("open", Policy::Allow, 6),
    route("shards", Policy::Deny, 1),
    route("apart", Policy::Deny, 3), // on a cluster, its limits are on different nodes and decided in sequence
    route("free", Policy::Allow, 1),
];

pub const LIMITS: [Limit; 19] = [
    limit(0, "total", false, Algorithm::TokenBucket, 60, 3_000),
    limit(1, "total", false, Algorithm::TokenBucket, 1_200, 3_000),
    limit(2, "own", true, Algorithm::TokenBucket, 15, 3_000),
    limit(3, "total", false, Algorithm::Gcra { burst: 80 }, 40, 2_000),
    limit(4, "total", false, Algorithm::LeakyBucket { queue: 3 }, 30, 2_000),
    limit(5, "total", false, Algorithm::FixedWindow, 40, 1_000),
    limit(6, "total", false, Algorithm::SlidingWindow { segments: 6 }, 60, 3_000),
    limit(7, "total", false, Algorithm::TokenBucket, 90, 3_000),
    limit(7, "own", true, Algorithm::TokenBucket, 40, 3_000),
    limit(8, "total", false, Algorithm::TokenBucket, 150, 5_000),
    limit(9, "total", false, Algorithm::Gcra { burst: 30 }, 40, 2_000),
    limit(10, "total", false, Algorithm::LeakyBucket { queue: 3 }, 30, 2_000),
    limit(11, "total", false, Algorithm::FixedWindow, 40, 1_000),
    limit(12, "total", false, Algorithm::SlidingWindow { segments: 6 }, 60, 3_000),
    limit(13, "total", false, Algorithm::TokenBucket, 60, 3_000).with(KEY),
    limit(14, "own", true, Algorithm::TokenBucket, 15, 3_000),
    limit(15, "total", false, Algorithm::TokenBucket, 120, 3_000).with("shards: 4"),
    limit(16, "total", false, Algorithm::TokenBucket, 90, 3_000),
    limit(16, "own", true, Algorithm::TokenBucket, 40, 3_000).with(PARTITIONS),
];

const KEY: &str = "key: chaos";
const PARTITIONS: &str = "partitions: 8";

const fn route(name: &'static str, policy: Policy, clients: usize) -> Route {
    Route { name, policy, clients }
}

const fn limit(
    route: usize,
    name: &'static str,
    per_client: bool,
    algorithm: Algorithm,
    rate: u64,
    interval: u64,
) -> Limit {
    Limit { route, name, per_client, rule: Rule { algorithm, rate, interval }, extra_keys: "" }
}

/// Returns a rule file with this store and the access log on standard output.
pub fn rule_file(store: &str, deadline: Duration) -> String {
    let store = format!("{store}, timeout: {}ms", deadline.as_millis());
    let routes = ROUTES.iter().enumerate().map(|(number, route)| {
        let limits = LIMITS.iter().filter(|limit| limit.route == number);
        (route.name, limits.map(Limit::entry).collect())
    });
    super::rule_file::rule_file("stdout", &store, routes)
}

// === impl Algorithm ===

impl Algorithm {
    /// Returns `true` if requests wait for their time slots.
    pub fn waits(self) -> bool {
        matches!(self, Self::LeakyBucket { .. })
    }
}

// === impl Limit ===

impl Limit {
    const fn with(self, extra_keys: &'static str) -> Self {
        Self { extra_keys, ..self }
    }

    pub fn policy(&self) -> Policy {
        ROUTES[self.route].policy
    }

    /// Returns `true` if a cluster decides the limit after another limit of its route. The access log then has only the
    /// time of the other decision.
    pub fn is_decided_second(&self) -> bool {
        self.extra_keys == PARTITIONS
    }

    /// Returns the unique name `route.limit`.
    pub fn title(&self) -> String {
        format!("{}.{}", ROUTES[self.route].name, self.name)
    }

    fn entry(&self) -> String {
        let Rule { algorithm, rate, interval } = self.rule;
        let mode = if self.per_client { "PER_CLIENT, client: 'header:k'" } else { "OVERALL" };
        // A limit that Java shares has Redisson's algorithm.
        let keys =
            if self.extra_keys == KEY { String::new() } else { format!(", algorithm: {}", algorithm.keys(interval)) };
        let extra = if self.extra_keys.is_empty() { String::new() } else { format!(", {}", self.extra_keys) };
        let (name, policy) = (self.name, self.policy().as_str());
        format!(
            "{{ name: {name}, mode: {mode}, rate: {rate}, interval: {interval}ms{keys}, on_store_failure: {policy}{extra} }}"
        )
    }
}

// === impl Policy ===

impl Policy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}
