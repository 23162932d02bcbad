//! The metrics of a gateway. Each counter and histogram has a method that records an event, and a description.
//!
//! Labels are names from the rule file and fixed words, never client input. The counters of a route or a limit exist
//! while a rule set uses it, and keep their values when new rules replace old ones. Handles are created when a rule
//! file is loaded, so that counting a request is an atomic addition.
//!
//! Programs create and export [`Metrics`]. All other items are for the crates of Tidegate.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

mod catalog;
mod connections;
mod identities;
mod instruments;
mod process;
mod reference;
mod requests;
mod spans;
mod store;
mod upstream;

use std::time::Duration;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use self::catalog::Catalog;
use self::connections::Connections;
use self::identities::Identities;
pub use self::identities::{Credential, LoadOutcome};
pub use self::instruments::gauge::GaugeGuard;
use self::instruments::histogram::Histogram;
pub use self::instruments::sample::{ConnectionSample, Durations, Sample};
use self::process::control_plane::ControlPlane;
pub use self::process::reloads::ReloadOutcome;
use self::process::reloads::Reloads;
use self::process::usage::Usage;
pub use self::reference::reference;
pub use self::requests::budgets::BudgetShare;
use self::requests::calls::Calls;
pub use self::requests::calls::{CallMetrics, CallResult};
use self::requests::in_flight::InFlight;
pub use self::requests::in_flight::InFlightMetrics;
pub use self::requests::limits::LimitMetrics;
use self::requests::limits::Limits;
pub use self::requests::routes::RouteMetrics;
use self::requests::routes::Routes;
use self::requests::services::Services;
pub use self::requests::services::{ServiceMetrics, ServiceResult};
use self::requests::waits::Waits;
pub use self::requests::waits::{WaitMetrics, WaitRecord};
pub use self::spans::SpanOutcome;
use self::spans::Spans;
pub use self::store::BreakerGauge;
use self::store::StoreMetrics;
pub use self::store::nodes::{NodeMetrics, NodeSeries};
use self::upstream::Upstreams;
use self::upstream::dns::DnsNames;
pub use self::upstream::dns::{DnsNameMetrics, DnsOutcome};
use self::upstream::target::Targets;
pub use self::upstream::target::{AttemptOutcome, TargetMetrics};
pub use self::upstream::{BrokenResponse, RetryCause, TunnelEnd, UpstreamMetrics, UpstreamTotals};

/// All metrics of a gateway or a layer.
#[derive(Debug)]
pub struct Metrics {
    /// Whether to register the metrics of a gateway that a layer does not have.
    of_gateway: bool,
    registry: Registry,
    routes: Routes,
    limits: Limits,
    waits: Waits,
    in_flight: InFlight,
    services: Services,
    calls: Calls,
    control_plane: ControlPlane,
    connections: Connections,
    config: Reloads,
    identities: Identities,
    upstreams: Upstreams,
    targets: Targets,
    dns_names: DnsNames,
    store: StoreMetrics,
    spans: Spans,
}

impl Metrics {
    /// The media type of the page that [`Metrics::render`] returns.
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Creates metrics without data.
    pub fn new() -> Self {
        Self::with_buckets(&[])
    }

    /// Creates metrics without data, whose histograms of durations have these upper bounds, in ascending order. Without
    /// bounds, they have default bounds from 0.5 ms to 10 s.
    pub fn with_buckets(bounds: &[Duration]) -> Self {
        Self::registered(false, bounds)
    }

    fn registered(of_gateway: bool, bounds: &[Duration]) -> Self {
        let durations = Histogram::of_durations(bounds);
        let mut metrics = Self {
            of_gateway,
            registry: Registry::default(),
            routes: Routes::new(&durations),
            limits: Limits::default(),
            waits: Waits::new(&durations),
            in_flight: InFlight::default(),
            services: Services::default(),
            calls: Calls::new(&durations),
            control_plane: ControlPlane::default(),
            connections: Connections::default(),
            config: Reloads::default(),
            identities: Identities::default(),
            upstreams: Upstreams::new(&durations),
            targets: Targets::default(),
            dns_names: DnsNames::default(),
            store: StoreMetrics::new(&durations),
            spans: Spans::default(),
        };
        let mut registry = Registry::default();
        metrics.describe(&mut Catalog::new(&mut registry));
        if of_gateway {
            registry.register_collector(Box::new(Usage));
        }
        metrics.registry = registry;
        metrics
    }

    /// Registers the metrics, in the order of `docs/metrics.md`.
    fn describe(&self, catalog: &mut Catalog<'_>) {
        catalog.section("Requests and limits");
        self.routes.describe(catalog);
        self.limits.describe(catalog);
        self.waits.describe(catalog);
        self.identities.describe(catalog);
        self.in_flight.describe(catalog);
        catalog.section("The store");
        self.store.describe(catalog);
        if !self.of_gateway {
            catalog.section("Client connections");
            return self.connections.describe_rejected(catalog);
        }
        catalog.section("The rate limit service");
        self.calls.describe(catalog);
        self.control_plane.describe(catalog);
        catalog.section("Upstreams");
        self.services.describe(catalog);
        self.upstreams.describe(catalog);
        self.targets.describe(catalog);
        self.dns_names.describe(catalog);
        catalog.section("Client connections");
        self.connections.describe(catalog);
        catalog.section("The rule file");
        self.config.describe(catalog);
        catalog.section("The process");
        process::describe(catalog);
        self.spans.describe(catalog);
    }

    /// Returns a page with all metrics in the OpenMetrics text format. Its last line is `# EOF`.
    pub fn render(&self) -> String {
        let mut page = String::new();
        self.append_to(&mut page);
        page.push_str("# EOF\n");
        page
    }

    /// Appends all metrics in the OpenMetrics text format to a page with other metrics, without the line `# EOF`. All names
    /// begin with `tidegate_`.
    ///
    /// The Prometheus text format, version 0.0.4, may contain them too: only an OpenMetrics page ends with `# EOF`, which
    /// the caller or another library writes after them.
    pub fn append_to(&self, page: &mut String) {
        // Writing to a string cannot fail.
        _ = encode_registry(page, &self.registry);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Creates the metrics of a gateway, with these upper bounds.
    pub fn of_gateway(bounds: &[Duration]) -> Self {
        Self::registered(true, bounds)
    }

    /// Reads the counters that the dashboard shows.
    pub fn sample(&self) -> Sample {
        let mut sample = Sample::default();
        self.routes.sample(&mut sample);
        self.limits.sample(&mut sample);
        self.upstreams.sample(&mut sample);
        self.connections.sample(&mut sample);
        self.store.sample(&mut sample);
        sample
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::MetricType;

    use super::instruments::histogram::SECONDS;
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

    #[test]
    fn buckets_can_be_configured() {
        let metrics = Metrics::with_buckets(&[Duration::from_millis(5), Duration::from_secs(2)]);
        metrics.route("api").responded(200, Duration::from_millis(3));
        let handle = metrics.route("api");
        handle.responded(200, Duration::from_millis(50));
        metrics.store_decided(Duration::from_millis(5));
        let text = metrics.render();
        for (bound, count) in [("0.005", 0), ("2.0", 1), ("+Inf", 1)] {
            let line = format!("_bucket{{le=\"{bound}\",route=\"api\",status=\"2xx\"}} {count}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(text.contains("tidegate_store_call_seconds_bucket{le=\"0.005\"} 1\n"), "{text}");
        // The buckets for batches are not durations.
        assert!(text.contains("tidegate_store_batch_requests_bucket{le=\"64.0\"} 0\n"), "{text}");
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
    fn metrics_are_appended_to_another_page() {
        let metrics = Metrics::new();
        let route = metrics.route("api");
        route.responded(200, Duration::from_micros(1500));
        let mut page = "mails_total 3\n".to_owned();
        metrics.append_to(&mut page);
        assert_eq!(page.clone() + "# EOF\n", "mails_total 3\n".to_owned() + &metrics.render());
        assert!(page.contains("tidegate_request_duration_seconds_count{route=\"api\",status=\"2xx\"} 1\n"), "{page}");
    }

    /// The Prometheus text format has fewer types than OpenMetrics. Its readers reject the page if a type is not known.
    #[test]
    fn metrics_of_a_layer_have_types_of_the_prometheus_format() {
        let mut registry = Registry::default();
        let mut catalog = Catalog::new(&mut registry);
        Metrics::new().describe(&mut catalog);
        let metrics: Vec<_> = catalog.sections.iter().flat_map(|section| &section.metrics).collect();
        let is_known =
            |kind: &MetricType| matches!(kind, MetricType::Counter | MetricType::Gauge | MetricType::Histogram);
        assert!(metrics.len() > 20 && metrics.iter().all(|(_, kind)| is_known(kind)), "{metrics:?}");
    }

    /// Regression test: a layer had `tidegate_config_last_reload_successful 0` for ever, for which there is an alert.
    #[test]
    fn layer_has_no_metrics_of_a_gateway() {
        let (layer, gateway) = (Metrics::new().render(), Metrics::of_gateway(&[]).render());
        for name in ["config_last_reload_successful", "build_info", "connections", "panics_total"] {
            let has = |text: &str| text.lines().any(|line| line.starts_with(&format!("tidegate_{name}")));
            assert!(!has(&layer) && has(&gateway), "{name}\n{layer}\n{gateway}");
        }
        let metrics = Metrics::new();
        metrics.rejected("max_body");
        assert!(metrics.render().contains("tidegate_rejected_total{cause=\"max_body\"} 1\n"), "{}", metrics.render());
    }

    /// Regression test: the page had 420,139 lines, 33 MB, before the first request.
    #[test]
    fn only_routes_with_traffic_have_series() {
        let metrics = Metrics::new();
        let routes: Vec<_> = (0..5_000).map(|number| format!("route-{number}")).collect();
        let handles: Vec<_> =
            routes.iter().map(|name| (metrics.route(name.as_str()), metrics.limit(name.as_str(), "l"))).collect();
        let untouched = metrics.render();
        assert!(untouched.len() < 10_000 && !untouched.contains("route-"), "{untouched}");
        handles[7].0.responded(200, Duration::from_micros(1500));
        handles[7].1.allowed();
        let text = metrics.render();
        let route_lines: Vec<_> = text.lines().filter(|line| line.contains("route-")).collect();
        assert!(route_lines.iter().all(|line| line.contains(r#"route="route-7""#)), "{route_lines:?}");
        // Two counters; the sum, the count and the buckets of one histogram.
        assert_eq!(route_lines.len(), 2 + 2 + SECONDS.len() + 1);
        assert!(text.contains("# TYPE tidegate_decisions counter\n"), "{text}");
    }
}
