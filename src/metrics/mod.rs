//! The metrics of a gateway. Each counter and histogram has a method that records an event.
//!
//! Labels are names from the rule file and fixed words, never client input. The counters of a route or a limit exist
//! while a rule set uses it, and keep their values when new rules replace old ones. Handles are created when a rule
//! file is loaded, so that counting a request is an atomic addition.

mod family;
mod histogram;
mod nodes;
mod responses;
mod series_users;
mod upstream;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::family::Family;
use self::histogram::Histogram;
use self::nodes::Nodes;
pub(crate) use self::nodes::{NodeMetrics, NodeSeries};
use self::responses::Responses;
pub(crate) use self::responses::RouteMetrics;
use self::series_users::{SeriesUser, SeriesUsers};
use self::upstream::Upstreams;
#[cfg(feature = "gateway")]
pub(crate) use self::upstream::{AttemptOutcome, BrokenResponse, GaugeGuard, TunnelEnd};
pub(crate) use self::upstream::{TargetMetrics, UpstreamMetrics};

/// All metrics of a gateway or a layer.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    users: SeriesUsers,
    decisions: Family<DecisionLabels, Counter>,
    requests: Family<RequestLabels, Histogram>,
    responses: Responses,
    connections: Gauge,
    connections_refused: Counter,
    accept_failures: Counter,
    rejected: Family<CauseLabels, Counter>,
    certificates: Family<CertificateLabels, Gauge>,
    upstreams: Upstreams,
    store_decisions: Histogram,
    store_calls: Counter,
    store_nodes: Nodes,
    known_refusals: Counter,
    store_failures: Family<CauseLabels, Counter>,
    store_overflow: Family<LimitLabels, Counter>,
    store_gateways: Gauge,
    store_up: Gauge,
    store_charged: Counter,
}

/// Panics of the process. Shared by all gateways in the process.
static PANICS: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Dropped lines of the access log of the process.
static ACCESS_LINES_DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// The counters of one limit.
#[derive(Clone, Debug)]
pub(crate) struct LimitMetrics {
    allowed: Counter,
    limited: Counter,
    shadow_limited: Counter,
    store_failed: Counter,
    /// The family of all limits, and the labels of this one. The series is only created when needed, which is rare.
    overflow: (Family<LimitLabels, Counter>, LimitLabels),
    _user: Arc<SeriesUser>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    route: String,
    limit: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    route: String,
    limit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Creates metrics without data.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            users: SeriesUsers::default(),
            decisions: Family::default(),
            requests: Family::default(),
            responses: Responses::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            accept_failures: Counter::default(),
            rejected: Family::default(),
            certificates: Family::default(),
            upstreams: Upstreams::default(),
            store_decisions: Histogram::default(),
            store_calls: Counter::default(),
            store_nodes: Nodes::default(),
            known_refusals: Counter::default(),
            store_failures: Family::default(),
            store_overflow: Family::default(),
            store_gateways: Gauge::default(),
            store_up: Gauge::default(),
            store_charged: Counter::default(),
        };
        metrics.store_up.set(1);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.registry = registry;
        metrics
    }

    /// Registers all metrics in a registry of the embedding program, under names that begin with `tidegate_`. The
    /// program must use the same version of `prometheus_client` as this crate, 0.25.
    ///
    /// Can be called before or after the metrics are passed to a layer, once for each registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("tidegate");
        registry.register("decisions", "Decisions of each limit", self.decisions.clone());
        let help = "Seconds from the head of a request to the head of its response";
        registry.register("request_duration_seconds", help, self.requests.clone());
        let help = "Responses by route and status code; 499 if the client disconnected before the response";
        registry.register("responses", help, self.responses.clone());
        registry.register("connections", "Open client connections", self.connections.clone());
        let help = "Client connections refused because of the connection limit";
        registry.register("connections_refused", help, self.connections_refused.clone());
        let help = "Failures to accept connections, mostly because of too few file descriptors";
        registry.register("accept_failures", help, self.accept_failures.clone());
        let help =
            "Connections, streams and requests that ended because of a bound or a protocol error, not a rate limit";
        registry.register("rejected", help, self.rejected.clone());
        let help = "Expiry of a certificate that is presented to clients or upstreams, in seconds since the Unix epoch";
        registry.register("certificate_expiry_seconds", help, self.certificates.clone());
        self.upstreams.register(registry);
        registry.register(
            "store_call_seconds",
            "Seconds that a decision of the store took",
            self.store_decisions.clone(),
        );
        registry.register(
            "store_calls",
            "Calls to the store, each with one or more decisions",
            self.store_calls.clone(),
        );
        self.store_nodes.register(registry);
        let help = "Requests rejected by a cached refusal, without a call to the store";
        registry.register("store_known_refusals", help, self.known_refusals.clone());
        let help = "Panics that were caught: a request answered with 500, or a connection closed";
        registry.register("panics", help, PANICS.clone());
        let help = "Lines of the access log that were dropped because of a slow reader or a failed write";
        registry.register("access_log_dropped", help, ACCESS_LINES_DROPPED.clone());
        registry.register("store_failures", "Decisions that the store did not make", self.store_failures.clone());
        let help =
            "Requests counted in the shared overflow bucket, because the store had no capacity for another client";
        registry.register("store_overflow", help, self.store_overflow.clone());
        let help = "Known gateways that share the store, including this one; 0 for an in-memory store";
        registry.register("gateways", help, self.store_gateways.clone());
        let help = "0 while a connection to the store is down, otherwise 1";
        registry.register("store_up", help, self.store_up.clone());
        let help = "Permits that were granted without the store and charged to it later";
        registry.register("store_charged_afterwards", help, self.store_charged.clone());
    }

    /// Returns the counters of one limit. They are exported until the handle and its clones are dropped.
    pub(crate) fn limit(&self, route: &str, limit: &str) -> LimitMetrics {
        const OUTCOMES: [&str; 4] = ["allowed", "limited", "shadow_limited", "store_failed"];
        let names = LimitLabels { route: route.to_owned(), limit: limit.to_owned() };
        let labels = |names: &LimitLabels, outcome| {
            let LimitLabels { route, limit } = names.clone();
            DecisionLabels { route, limit, outcome }
        };
        let (decisions, overflow, removed) = (self.decisions.clone(), self.store_overflow.clone(), names.clone());
        let _user = self.users.add((route.to_owned(), Some(limit.to_owned())), move || {
            OUTCOMES.iter().for_each(|outcome| decisions.remove(&labels(&removed, outcome)));
            overflow.remove(&removed);
        });
        let counter = |outcome| self.decisions.get_or_create(&labels(&names, outcome));
        LimitMetrics {
            allowed: counter("allowed"),
            limited: counter("limited"),
            shadow_limited: counter("shadow_limited"),
            store_failed: counter("store_failed"),
            overflow: (self.store_overflow.clone(), names),
            _user,
        }
    }

    /// Returns the counters of one route. They are exported until the handle and its clones are dropped. The empty name
    /// is for requests that match no route.
    pub(crate) fn route(&self, route: &str) -> RouteMetrics {
        const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        const ABANDONED: &str = "499";
        let labels = |route: &str, status| RequestLabels { route: route.to_owned(), status };
        let (requests, responses, removed) = (self.requests.clone(), self.responses.clone(), route.to_owned());
        let _user = self.users.add((route.to_owned(), None), move || {
            CLASSES.iter().chain([&ABANDONED]).for_each(|status| requests.remove(&labels(&removed, status)));
            responses.remove(&removed);
        });
        let histogram = |status| self.requests.get_or_create(&labels(route, status));
        let responses = self.responses.route(route);
        RouteMetrics { responses, classes: CLASSES.map(histogram), abandoned: histogram(ABANDONED), _user }
    }

    /// Returns the counters of one upstream.
    pub(crate) fn upstream(&self, upstream: &str) -> UpstreamMetrics {
        self.upstreams.upstream(upstream)
    }

    /// Returns the counters of one target of an upstream, named as in the rule file.
    pub(crate) fn target(&self, upstream: &str, target: &str) -> TargetMetrics {
        self.upstreams.target(upstream, target)
    }

    /// Counts an open client connection.
    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    /// Removes a closed client connection from the number of open ones.
    pub(crate) fn connection_closed(&self) {
        self.connections.dec();
    }

    /// Counts a connection that was refused because of the connection limit.
    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Counts a failure to accept connections.
    pub(crate) fn accept_failed(&self) {
        self.accept_failures.inc();
    }

    /// Counts a connection, stream or request that ended because of a bound or a protocol error. `cause` is a fixed
    /// label.
    pub(crate) fn rejected(&self, cause: &'static str) {
        self.rejected.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Sets the expiry of a certificate file, in seconds since the Unix epoch.
    pub(crate) fn set_certificate_expiry(&self, file: &str, at: i64) {
        self.certificates.get_or_create(&CertificateLabels { certificate: file.to_owned() }).set(at);
    }

    /// Counts a panic that was caught.
    pub(crate) fn panicked() {
        PANICS.inc();
    }

    /// Counts dropped lines of the access log.
    pub(crate) fn access_lines_dropped(count: u64) {
        ACCESS_LINES_DROPPED.inc_by(count);
    }

    /// Records a decision of the store and its duration.
    pub(crate) fn store_decided(&self, took: Duration) {
        self.store_decisions.observe(took);
    }

    /// Sets the number of gateways that share the store.
    pub(crate) fn set_gateways(&self, gateways: u32) {
        self.store_gateways.set(gateways.into());
    }

    /// Sets whether the store is reachable.
    pub(crate) fn set_store_up(&self, is_up: bool) {
        self.store_up.set(is_up.into());
    }

    /// Counts permits that were charged to the store after they had been granted without it.
    pub(crate) fn store_charged(&self, permits: u64) {
        self.store_charged.inc_by(permits);
    }

    /// Counts a call to the store.
    pub(crate) fn store_called(&self) {
        self.store_calls.inc();
    }

    /// Adds a node of a cluster.
    pub(crate) fn add_node(&self, address: String) -> NodeSeries {
        self.store_nodes.add(address)
    }

    /// Counts a request that was rejected by a cached refusal.
    pub(crate) fn known_refusal(&self) {
        self.known_refusals.inc();
    }

    /// Counts a failed decision of the store. `cause` is a fixed label.
    pub(crate) fn store_failed(&self, cause: &'static str) {
        self.store_failures.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

// === impl LimitMetrics ===

impl LimitMetrics {
    /// Counts a request that was granted.
    pub(crate) fn allowed(&self) {
        self.allowed.inc();
    }

    /// Counts a request that was rejected.
    pub(crate) fn limited(&self) {
        self.limited.inc();
    }

    /// Counts a request that a shadow limit would have rejected.
    pub(crate) fn shadow_limited(&self) {
        self.shadow_limited.inc();
    }

    /// Counts a request for which the store failed, so that `on_store_failure` decided.
    pub(crate) fn store_failed(&self) {
        self.store_failed.inc();
    }

    /// Counts a request that used the shared overflow bucket.
    pub(crate) fn overflowed(&self) {
        let (counters, labels) = &self.overflow;
        counters.get_or_create(labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::histogram::BOUNDS;
    use super::*;

    #[test]
    fn counts_are_rendered_with_the_names_of_the_rule_file() {
        let metrics = Metrics::new();
        let (limit, route) = (metrics.limit("api", "per-ip"), metrics.route("api"));
        limit.limited();
        metrics.limit("api", "per-ip").limited();
        route.responded(429, Duration::from_micros(1500));
        let text = metrics.render();
        let has = |line: &str| assert!(text.lines().any(|other| other == line), "no `{line}` in\n{text}");
        has(r#"tidegate_decisions_total{route="api",limit="per-ip",outcome="limited"} 2"#);
        has(r#"tidegate_request_duration_seconds_bucket{le="0.001",route="api",status="4xx"} 0"#);
        has(r#"tidegate_request_duration_seconds_bucket{le="0.0025",route="api",status="4xx"} 1"#);
        has(r#"tidegate_request_duration_seconds_bucket{le="+Inf",route="api",status="4xx"} 1"#);
        has(r#"tidegate_request_duration_seconds_sum{route="api",status="4xx"} 0.0015"#);
    }

    /// Regression test: 300 renamed routes left 5,153 lines.
    #[test]
    fn dropped_handles_remove_their_series() {
        let metrics = Metrics::new();
        let count = |name: &str| {
            let handles = (metrics.route(name), metrics.limit(name, "all"));
            handles.0.responded(200, Duration::from_micros(1500));
            handles.1.allowed();
            handles.1.overflowed();
            handles
        };
        let first = count("kept");
        let shared = (metrics.route("kept"), metrics.limit("kept", "all"));
        drop(first);
        (0..300).for_each(|number| drop(count(&format!("renamed-{number}"))));
        let text = metrics.render();
        assert!(!text.contains("renamed-"), "{text}");
        assert!(text.contains("tidegate_store_overflow_total{route=\"kept\",limit=\"all\"} 1\n"), "{text}");
        assert!(text.contains("_count{route=\"kept\",status=\"2xx\"} 1\n"), "{text}");
        drop(shared);
        assert!(!metrics.render().contains("kept"), "{}", metrics.render());
    }

    #[test]
    fn metrics_can_be_registered_in_another_registry() {
        let (metrics, mut registry) = (Metrics::new(), Registry::default());
        metrics.register(&mut registry);
        let route = metrics.route("api");
        route.responded(200, Duration::from_micros(1500));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        assert_eq!(text, metrics.render());
        assert!(text.contains("tidegate_request_duration_seconds_count{route=\"api\",status=\"2xx\"} 1\n"), "{text}");
    }

    /// Regression test: the page had 420,139 lines, 33 MB, before the first request.
    #[test]
    fn only_routes_with_traffic_have_series() {
        let metrics = Metrics::new();
        let routes: Vec<_> = (0..5_000).map(|number| format!("route-{number}")).collect();
        let handles: Vec<_> = routes.iter().map(|name| (metrics.route(name), metrics.limit(name, "l"))).collect();
        let untouched = metrics.render();
        assert!(untouched.len() < 10_000 && !untouched.contains("route-"), "{untouched}");
        handles[7].0.responded(200, Duration::from_micros(1500));
        handles[7].1.allowed();
        let text = metrics.render();
        let route_lines: Vec<_> = text.lines().filter(|line| line.contains("route-")).collect();
        assert!(route_lines.iter().all(|line| line.contains(r#"route="route-7""#)), "{route_lines:?}");
        // Two counters; the sum, the count and the buckets of one histogram.
        assert_eq!(route_lines.len(), 2 + 2 + BOUNDS.len());
        assert!(text.contains("# TYPE tidegate_decisions counter\n"), "{text}");
    }
}
