//! The limits under load, and their rule files.

use super::checker::{Algorithm, Rule};

/// A limit under load, in the version of the rules at the start and in the other one.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub route: &'static str,
    pub name: &'static str,
    /// Whether each path of the route has a bucket, or all share one.
    pub per_client: bool,
    /// Whether this limit, and no other, bounds the grants of its route. Only then are all permits that it allows
    /// granted.
    pub binds: bool,
    pub rules: [Rule; VERSIONS],
}

/// A route under load.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub name: &'static str,
    /// The number of clients. Each has a path.
    pub clients: usize,
    /// The relative number of requests of each client.
    pub weight: usize,
}

/// The number of versions of the rules.
pub const VERSIONS: usize = 2;

pub const ROUTES: [Route; 9] = [
    Route { name: "plain", clients: 1, weight: 2 },
    Route { name: "merged", clients: 1, weight: 4 }, // grants share log entries at this rate
    Route { name: "clients", clients: 4, weight: 1 },
    Route { name: "both", clients: 3, weight: 1 },
    Route { name: "three", clients: 3, weight: 1 },
    Route { name: "smooth", clients: 1, weight: 1 },
    Route { name: "queued", clients: 1, weight: 1 }, // granted requests wait for their time slots
    Route { name: "calendar", clients: 1, weight: 1 },
    Route { name: "segments", clients: 1, weight: 1 },
];

/// In the first version, one limit of each route binds, and the others are close to it. In the second version, the
/// rates differ, and some intervals. The intervals of windows are equal, because a longer interval does not know the
/// grants that a shorter one has removed.
const LIMITS: [Limit; 12] = [
    limit("plain", "total", false, true, [bucket(120, 5_000), bucket(50, 5_000)]),
    limit("merged", "total", false, true, [bucket(1_000, 5_000), bucket(400, 2_000)]),
    limit("clients", "own", true, true, [bucket(20, 4_000), bucket(30, 4_000)]),
    limit("both", "total", false, true, [bucket(90, 3_000), bucket(150, 6_000)]),
    limit("both", "own", true, false, [bucket(40, 3_000), bucket(25, 3_000)]),
    limit("three", "short", false, false, [bucket(40, 1_000), bucket(20, 500)]),
    limit("three", "long", false, true, [bucket(120, 6_000), bucket(700, 20_000)]),
    limit("three", "own", true, false, [bucket(50, 6_000), bucket(10, 6_000)]),
    limit("smooth", "total", false, true, [GCRA[0].of(40, 2_000), GCRA[1].of(50, 3_000)]),
    limit("queued", "total", false, true, [QUEUES[0].of(30, 2_000), QUEUES[1].of(20, 1_000)]),
    limit(
        "calendar",
        "total",
        false,
        true,
        [Algorithm::FixedWindow.of(40, 1_000), Algorithm::FixedWindow.of(25, 1_000)],
    ),
    limit("segments", "total", false, true, [SEGMENTS.of(60, 3_000), SEGMENTS.of(90, 3_000)]),
];

/// Returns the limits with their rates multiplied by `factor`.
pub fn limits(factor: u64) -> Vec<Limit> {
    LIMITS.iter().map(|limit| Limit { rules: limit.rules.map(|rule| rule.multiply(factor)), ..*limit }).collect()
}

const GCRA: [Algorithm; VERSIONS] = [Algorithm::Gcra { burst: 30 }, Algorithm::Gcra { burst: 12 }];
const QUEUES: [Algorithm; VERSIONS] = [Algorithm::LeakyBucket { queue: 3 }, Algorithm::LeakyBucket { queue: 6 }];
const SEGMENTS: Algorithm = Algorithm::SlidingWindow { segments: 6 };

const fn limit(
    route: &'static str,
    name: &'static str,
    per_client: bool,
    binds: bool,
    rules: [Rule; VERSIONS],
) -> Limit {
    Limit { route, name, per_client, binds, rules }
}

const fn bucket(rate: u64, interval: u64) -> Rule {
    Algorithm::TokenBucket.of(rate, interval)
}

/// Returns the paths of the requests, each as often as the weight of its route.
pub fn paths() -> Vec<String> {
    let heaviest = ROUTES.iter().map(|route| route.weight).max().unwrap_or(0);
    let rounds = (0..heaviest).flat_map(|round| ROUTES.iter().filter(move |route| round < route.weight));
    rounds.flat_map(|route| (0..route.clients).map(move |client| format!("/{}/{client}", route.name))).collect()
}

/// Returns the rule file of a gateway that writes this access log. A request without a decision is rejected.
pub fn rule_file(limits: &[Limit], version: usize, store: &str, access_log: &str) -> String {
    let routes = ROUTES.map(|route| {
        let of_route = limits.iter().filter(|limit| limit.route == route.name);
        (route.name, of_route.map(|limit| limit.entry(version)).collect())
    });
    super::rule_file::rule_file(access_log, store, routes)
}

// === impl Algorithm ===

impl Algorithm {
    const fn of(self, rate: u64, interval: u64) -> Rule {
        Rule { algorithm: self, rate, interval }
    }
}

// === impl Rule ===

impl Rule {
    /// Multiplies the rate and the burst. The queue does not change, because waiting requests occupy connections.
    fn multiply(self, factor: u64) -> Self {
        let algorithm = match self.algorithm {
            Algorithm::Gcra { burst } => Algorithm::Gcra { burst: burst * factor },
            algorithm => algorithm,
        };
        Self { algorithm, rate: self.rate * factor, ..self }
    }
}

// === impl Limit ===

impl Limit {
    fn entry(&self, version: usize) -> String {
        let Rule { algorithm, rate, interval } = self.rules[version];
        let mode = if self.per_client { "PER_CLIENT, client: path" } else { "OVERALL" };
        let algorithm = algorithm.keys(interval);
        format!(
            "{{ name: {}, mode: {mode}, rate: {rate}, interval: {interval}ms, algorithm: {algorithm}, \
             on_store_failure: deny }}",
            self.name
        )
    }
}
