//! The limits that are put under load: each algorithm under each policy.

use std::time::Duration;

use super::checker::{Law, Rule};

/// What a limit does while the store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Local,
    Deny,
    Allow,
}

/// A limit under load.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub route: usize,
    pub name: &'static str,
    /// One bucket for each client, or one for all.
    pub per_client: bool,
    pub rule: Rule,
    /// What else the rule file says of it.
    more: &'static str,
}

/// A route under load.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub name: &'static str,
    pub policy: Policy,
    /// How many clients it has.
    pub clients: usize,
}

/// The route without a limit: how long its requests take is the machine's affair.
pub const FREE: usize = 17;

pub const ROUTES: [Route; 18] = [
    route("bucket", Policy::Local, 1),
    route("merged", Policy::Local, 1), // so many permits that grants share log entries
    route("clients", Policy::Local, 6),
    route("smooth", Policy::Local, 1), // a burst that takes longer than an interval to return
    route("queued", Policy::Local, 1), // its grants wait for their slots
    route("calendar", Policy::Local, 1),
    route("segments", Policy::Local, 1),
    route("both", Policy::Local, 3),
    route("strict", Policy::Deny, 1),
    route("strict-smooth", Policy::Deny, 1),
    route("strict-queued", Policy::Deny, 1),
    route("strict-calendar", Policy::Deny, 1),
    route("strict-segments", Policy::Deny, 1),
    route("shared", Policy::Deny, 1), // as Redisson has it
    route("open", Policy::Allow, 6),
    route("shards", Policy::Deny, 1),
    route("apart", Policy::Deny, 3), // on a cluster its limits are decided in turn
    route("free", Policy::Allow, 1),
];

pub const LIMITS: [Limit; 19] = [
    limit(0, "total", false, Law::TokenBucket, 60, 3_000),
    limit(1, "total", false, Law::TokenBucket, 1_200, 3_000),
    limit(2, "own", true, Law::TokenBucket, 15, 3_000),
    limit(3, "total", false, Law::Gcra { burst: 80 }, 40, 2_000),
    limit(4, "total", false, Law::LeakyBucket { queue: 3 }, 30, 2_000),
    limit(5, "total", false, Law::FixedWindow, 40, 1_000),
    limit(6, "total", false, Law::SlidingWindow { segments: 6 }, 60, 3_000),
    limit(7, "total", false, Law::TokenBucket, 90, 3_000),
    limit(7, "own", true, Law::TokenBucket, 40, 3_000),
    limit(8, "total", false, Law::TokenBucket, 150, 5_000),
    limit(9, "total", false, Law::Gcra { burst: 30 }, 40, 2_000),
    limit(10, "total", false, Law::LeakyBucket { queue: 3 }, 30, 2_000),
    limit(11, "total", false, Law::FixedWindow, 40, 1_000),
    limit(12, "total", false, Law::SlidingWindow { segments: 6 }, 60, 3_000),
    limit(13, "total", false, Law::TokenBucket, 60, 3_000).with(KEY),
    limit(14, "own", true, Law::TokenBucket, 15, 3_000),
    limit(15, "total", false, Law::TokenBucket, 120, 3_000).with("shards: 4"),
    limit(16, "total", false, Law::TokenBucket, 90, 3_000),
    limit(16, "own", true, Law::TokenBucket, 40, 3_000).with(PARTITIONS),
];

const KEY: &str = "key: chaos";
const PARTITIONS: &str = "partitions: 8";

const fn route(name: &'static str, policy: Policy, clients: usize) -> Route {
    Route { name, policy, clients }
}

const fn limit(route: usize, name: &'static str, per_client: bool, law: Law, rate: u64, interval: u64) -> Limit {
    Limit { route, name, per_client, rule: Rule { law, rate, interval }, more: "" }
}

/// The rule file of a gateway that has this store and writes its access log to standard output.
pub fn rule_file(store: &str, deadline: Duration) -> String {
    let store = format!("{store}, timeout: {}ms", deadline.as_millis());
    let routes = ROUTES.iter().enumerate().map(|(number, route)| {
        let of_it = LIMITS.iter().filter(|limit| limit.route == number);
        (route.name, of_it.map(Limit::entry).collect())
    });
    super::rule_file::rule_file("stdout", &store, routes)
}

// === impl Law ===

impl Law {
    /// Does a request wait for its slot?
    pub fn waits(self) -> bool {
        matches!(self, Self::LeakyBucket { .. })
    }
}

// === impl Limit ===

impl Limit {
    const fn with(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    pub fn policy(&self) -> Policy {
        ROUTES[self.route].policy
    }

    /// On a cluster it is decided after the limit before it, and the access log tells when that was.
    pub fn comes_later(&self) -> bool {
        self.more == PARTITIONS
    }

    /// What tells it from all others.
    pub fn title(&self) -> String {
        format!("{}.{}", ROUTES[self.route].name, self.name)
    }

    fn entry(&self) -> String {
        let Rule { law, rate, interval } = self.rule;
        let mode = if self.per_client { "PER_CLIENT, client: 'header:k'" } else { "OVERALL" };
        // A limit that Java shares has that of Java.
        let keys = if self.more == KEY { String::new() } else { format!(", algorithm: {}", law.keys(interval)) };
        let more = if self.more.is_empty() { String::new() } else { format!(", {}", self.more) };
        let (name, policy) = (self.name, self.policy().word());
        format!(
            "{{ name: {name}, mode: {mode}, rate: {rate}, interval: {interval}ms{keys}, on_store_failure: {policy}{more} }}"
        )
    }
}

// === impl Policy ===

impl Policy {
    pub fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}
