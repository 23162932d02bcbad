//! Every counter and histogram as a named method.
//!
//! Labels are names from the rule file and words of our own, never what a client sent. The counters of a route or a limit live
//! as long as a rule set has it: rules that replace others find the counters where they were. Handles are taken at load, so that counting a request is
//! an atomic addition.

mod family;
mod histogram;
mod in_use;
mod nodes;
mod responses;
mod upstream;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::family::Family;
use self::histogram::Histogram;
use self::in_use::{InUse, Use};
use self::nodes::Nodes;
pub(crate) use self::nodes::{NodeMetrics, ShownNode};
use self::responses::Responses;
pub(crate) use self::responses::RouteMetrics;
use self::upstream::Upstreams;
#[cfg(feature = "gateway")]
pub(crate) use self::upstream::{AttemptOutcome, BrokenOff, GaugeGuard, Switched};
pub(crate) use self::upstream::{TargetMetrics, UpstreamMetrics};

/// All that this process counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    in_use: InUse,
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
    store_known: Counter,
    store_failures: Family<CauseLabels, Counter>,
    store_overflow: Family<LimitLabels, Counter>,
    store_gateways: Gauge,
    store_up: Gauge,
    store_charged: Counter,
}

/// Panics of the process: one count for all gateways in it.
static PANICS: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Lines of the process's access log that were dropped.
static ACCESS_LINES_DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Counts what one limit decides.
#[derive(Clone, Debug)]
pub(crate) struct LimitMetrics {
    allowed: Counter,
    limited: Counter,
    shadow_limited: Counter,
    store_failed: Counter,
    /// Of all limits, and which this one is: few ever need a counter of their own.
    overflow: (Family<LimitLabels, Counter>, LimitLabels),
    _use: Arc<Use>,
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
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            in_use: InUse::default(),
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
            store_known: Counter::default(),
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

    /// Registers all metrics, under names that begin with `tidegate_`, in a registry of the program's own. Its
    /// `prometheus_client` must be of the same version as the one of this crate, 0.25.
    ///
    /// Register a `Metrics` before or after it is given to a layer, once in each registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("tidegate");
        registry.register("decisions", "What each limit decided", self.decisions.clone());
        let help = "Seconds from a request's head to its answer's head";
        registry.register("request_duration_seconds", help, self.requests.clone());
        let help = "Responses to the requests of a route, by status code; 499 if the client left before its response";
        registry.register("responses", help, self.responses.clone());
        registry.register("connections", "Open client connections", self.connections.clone());
        let help = "Client connections refused at the connection cap";
        registry.register("connections_refused", help, self.connections_refused.clone());
        let help = "Times that connections could not be accepted, mostly for want of file descriptors";
        registry.register("accept_failures", help, self.accept_failures.clone());
        let help = "Connections, streams and requests that a bound or the protocol ended, and not a limit";
        registry.register("rejected", help, self.rejected.clone());
        let help = "When a certificate that clients or upstreams are shown expires, in seconds since the Unix epoch";
        registry.register("certificate_expiry_seconds", help, self.certificates.clone());
        self.upstreams.register(registry);
        registry.register("store_call_seconds", "Seconds a decision of the store took", self.store_decisions.clone());
        registry.register(
            "store_calls",
            "Calls to the store, each with one decision or many",
            self.store_calls.clone(),
        );
        self.store_nodes.register(registry);
        let known = "Requests refused without asking the store, as it was known to refuse them";
        registry.register("store_known_refusals", known, self.store_known.clone());
        let help = "Panics that were caught: a request answered with 500, or a connection closed";
        registry.register("panics", help, PANICS.clone());
        let help =
            "Lines of the access log that were dropped, since nobody took them in time or they could not be written";
        registry.register("access_log_dropped", help, ACCESS_LINES_DROPPED.clone());
        registry.register("store_failures", "Decisions that the store did not make", self.store_failures.clone());
        let help = "What was judged by a bucket that clients share for whom the store has no room";
        registry.register("store_overflow", help, self.store_overflow.clone());
        let help =
            "Gateways that share the store, this one included, as far as is known; none where it is in the process";
        registry.register("gateways", help, self.store_gateways.clone());
        let help = "0 while a connection to the store is known to be down, and 1 otherwise";
        registry.register("store_up", help, self.store_up.clone());
        let help = "Permits granted without the store that it was charged with afterwards";
        registry.register("store_charged_afterwards", help, self.store_charged.clone());
    }

    /// The counters of one limit, which are shown as long as the handle or a clone of it is kept.
    pub(crate) fn limit(&self, route: &str, limit: &str) -> LimitMetrics {
        const OUTCOMES: [&str; 4] = ["allowed", "limited", "shadow_limited", "store_failed"];
        let names = LimitLabels { route: route.to_owned(), limit: limit.to_owned() };
        let labels = |names: &LimitLabels, outcome| {
            let LimitLabels { route, limit } = names.clone();
            DecisionLabels { route, limit, outcome }
        };
        let (decisions, overflow, removed) = (self.decisions.clone(), self.store_overflow.clone(), names.clone());
        let _use = self.in_use.add((route.to_owned(), Some(limit.to_owned())), move || {
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
            _use,
        }
    }

    /// The counters of one route, which are shown as long as the handle or a clone of it is kept. An empty name stands for
    /// requests that match none.
    pub(crate) fn route(&self, route: &str) -> RouteMetrics {
        const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        const ABANDONED: &str = "499";
        let labels = |route: &str, status| RequestLabels { route: route.to_owned(), status };
        let (requests, responses, removed) = (self.requests.clone(), self.responses.clone(), route.to_owned());
        let _use = self.in_use.add((route.to_owned(), None), move || {
            CLASSES.iter().chain([&ABANDONED]).for_each(|status| requests.remove(&labels(&removed, status)));
            responses.remove(&removed);
        });
        let histogram = |status| self.requests.get_or_create(&labels(route, status));
        let responses = self.responses.route(route);
        RouteMetrics { responses, classes: CLASSES.map(histogram), abandoned: histogram(ABANDONED), _use }
    }

    /// The counters of one upstream.
    pub(crate) fn upstream(&self, upstream: &str) -> UpstreamMetrics {
        self.upstreams.of(upstream)
    }

    /// Returns the counters of one target of an upstream, named as in the rule file.
    pub(crate) fn target(&self, upstream: &str, target: &str) -> TargetMetrics {
        self.upstreams.target(upstream, target)
    }

    /// A client connection was accepted.
    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    /// A client connection ended.
    pub(crate) fn connection_closed(&self) {
        self.connections.dec();
    }

    /// A client was turned away at the connection cap.
    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Connections could not be accepted.
    pub(crate) fn accept_failed(&self) {
        self.accept_failures.inc();
    }

    /// A connection, a stream or a request was ended by a bound or by the protocol, for a cause that is a word of ours.
    pub(crate) fn rejected(&self, cause: &'static str) {
        self.rejected.get_or_create(&CauseLabels { cause }).inc();
    }

    /// The certificate of this file, which clients or upstreams are shown, expires then, in seconds since the Unix epoch.
    pub(crate) fn certificate_expires(&self, file: &str, at: i64) {
        self.certificates.get_or_create(&CertificateLabels { certificate: file.to_owned() }).set(at);
    }

    /// A panic was caught.
    pub(crate) fn panicked() {
        PANICS.inc();
    }

    /// So many lines of the access log were dropped.
    pub(crate) fn access_lines_dropped(count: u64) {
        ACCESS_LINES_DROPPED.inc_by(count);
    }

    /// The store decided.
    pub(crate) fn store_answered(&self, took: Duration) {
        self.store_decisions.observe(took);
    }

    /// So many gateways share the store.
    pub(crate) fn store_shared_by(&self, gateways: u32) {
        self.store_gateways.set(gateways.into());
    }

    /// The store is away, or back.
    pub(crate) fn store_is_up(&self, is_up: bool) {
        self.store_up.set(is_up.into());
    }

    /// The store was charged with so many permits that were granted without it.
    pub(crate) fn store_charged(&self, permits: u64) {
        self.store_charged.inc_by(permits);
    }

    /// A call was sent to the store.
    pub(crate) fn store_called(&self) {
        self.store_calls.inc();
    }

    /// Shows the node of a cluster at this address from now on.
    pub(crate) fn show_node(&self, address: String) -> ShownNode {
        self.store_nodes.show(address)
    }

    /// A request was refused without asking the store.
    pub(crate) fn store_known(&self) {
        self.store_known.inc();
    }

    /// The store did not decide, for a cause that is a word of ours.
    pub(crate) fn store_failed(&self, cause: &'static str) {
        self.store_failures.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Everything, in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail, and half a page is still more use than none.
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
    /// It granted a request that passed.
    pub(crate) fn allowed(&self) {
        self.allowed.inc();
    }

    /// It refused a request.
    pub(crate) fn limited(&self) {
        self.limited.inc();
    }

    /// It would have refused a request, but only watches.
    pub(crate) fn shadow_limited(&self) {
        self.shadow_limited.inc();
    }

    /// The store did not say, and the limit's `on_store_failure` decided.
    pub(crate) fn store_failed(&self) {
        self.store_failed.inc();
    }

    /// It judged a request by the bucket of the clients for whom the store has no room.
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
    fn what_is_counted_is_rendered_under_the_names_of_the_rule_file() {
        let metrics = Metrics::new();
        let (limit, route) = (metrics.limit("api", "per-ip"), metrics.route("api"));
        limit.limited();
        metrics.limit("api", "per-ip").limited();
        route.answered(429, Duration::from_micros(1500));
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
            handles.0.answered(200, Duration::from_micros(1500));
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
    fn other_registry_shows_the_metrics_with_their_names() {
        let (metrics, mut registry) = (Metrics::new(), Registry::default());
        metrics.register(&mut registry);
        let route = metrics.route("api");
        route.answered(200, Duration::from_micros(1500));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        assert_eq!(text, metrics.render());
        assert!(text.contains("tidegate_request_duration_seconds_count{route=\"api\",status=\"2xx\"} 1\n"), "{text}");
    }

    /// It had 420,139 lines, 33 MB, before the first request.
    #[test]
    fn of_5000_routes_only_the_series_with_traffic_are_shown() {
        let metrics = Metrics::new();
        let routes: Vec<_> = (0..5_000).map(|number| format!("route-{number}")).collect();
        let handles: Vec<_> = routes.iter().map(|name| (metrics.route(name), metrics.limit(name, "l"))).collect();
        let quiet = metrics.render();
        assert!(quiet.len() < 10_000 && !quiet.contains("route-"), "{quiet}");
        handles[7].0.answered(200, Duration::from_micros(1500));
        handles[7].1.allowed();
        let text = metrics.render();
        let of_routes: Vec<_> = text.lines().filter(|line| line.contains("route-")).collect();
        assert!(of_routes.iter().all(|line| line.contains(r#"route="route-7""#)), "{of_routes:?}");
        // Two counters; the sum, the count and the buckets of one histogram.
        assert_eq!(of_routes.len(), 2 + 2 + BOUNDS.len());
        assert!(text.contains("# TYPE tidegate_decisions counter\n"), "{text}");
    }
}
