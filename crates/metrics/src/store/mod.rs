//! Metrics of the store and of the gateways that share it.

pub(crate) mod nodes;

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use crate::instruments::family::Family;
use crate::instruments::gauge::GaugeGuard;
use crate::instruments::histogram::Histogram;
use crate::instruments::sample::{Sample, StoreSample};
use crate::store::nodes::{NodeSeries, Nodes};

/// Upper bounds of the buckets for batches, in requests.
const BATCH_SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];

/// The metrics of the store.
#[derive(Debug)]
pub(super) struct StoreMetrics {
    decisions: Histogram,
    calls: Counter,
    nodes: Nodes,
    known_refusals: Counter,
    failures: Family<CauseLabels, Counter>,
    up: Gauge,
    open_breakers: Gauge,
    batches: Histogram,
    charged: Counter,
    gateways: Gauge,
    fleet_rule_hashes: Gauge,
}

/// Counts connections that are not used because the store is too slow.
#[derive(Clone, Debug, Default)]
pub struct BreakerGauge(Gauge);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

// === impl StoreMetrics ===

impl StoreMetrics {
    /// Creates metrics whose histograms of durations are like `durations`.
    pub(super) fn new(durations: &Histogram) -> Self {
        let up = Gauge::default();
        up.set(1);
        Self {
            decisions: durations.empty(),
            calls: Counter::default(),
            nodes: Nodes::default(),
            known_refusals: Counter::default(),
            failures: Family::default(),
            up,
            open_breakers: Gauge::default(),
            batches: Histogram::new(BATCH_SIZES),
            charged: Counter::default(),
            gateways: Gauge::default(),
            fleet_rule_hashes: Gauge::default(),
        }
    }

    /// Adds the store to a sample.
    pub(super) fn sample(&self, sample: &mut Sample) {
        let (decisions, micros) = self.decisions.count_and_sum();
        let mut failures = 0;
        self.failures.for_each(|_, counter| failures += counter.get());
        sample.store = StoreSample {
            decisions,
            micros,
            failures,
            calls: self.calls.get(),
            known_refusals: self.known_refusals.get(),
            charged: self.charged.get(),
            is_up: self.up.get() == 1,
            open_breakers: self.open_breakers.get(),
        };
    }

    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let up = Description {
            name: "store_up",
            labels: &[],
            unit: "0 or 1",
            meaning: "0 while any connection to the store is down, or the store refuses calls, otherwise 1",
            action: "0: the line `store is unreachable` or `store refuses calls` has the cause; [outages](outages.md) describes the decisions \
                     until then",
        };
        catalog.add(self.up.clone(), up);
        let open_breakers = Description {
            name: "store_open_breakers",
            labels: &[],
            unit: "connections",
            meaning: "Connections to the store that are not used because its replies take too long. Each worker has \
                      one",
            action: "above 0: Redis or the network is slow; compare `tidegate_store_call_seconds` with \
                     `store.timeout`",
        };
        catalog.add(self.open_breakers.clone(), open_breakers);
        let failures = Description {
            name: "store_failures",
            labels: &[Label::Open("cause")],
            unit: "decisions",
            meaning: "Decisions that the store failed to make. `cause` is `timeout`, `unreachable`, `broken`, or the \
                      kind of Redis's error",
            action: "`timeout` without an outage: Redis or the network is slow; compare \
                     `tidegate_store_call_seconds` with `store.timeout`",
        };
        catalog.add(self.failures.clone(), failures);
        let decisions = Description {
            name: "store_call_seconds",
            labels: &[],
            unit: "seconds",
            meaning: "Time that decisions of the store took, with the wait for the call",
            action: "near `store.timeout`: Redis is overloaded or far away; raise the timeout or relieve Redis",
        };
        catalog.add(self.decisions.clone(), decisions);
        let calls = Description {
            name: "store_calls",
            labels: &[],
            unit: "calls",
            meaning: "Calls to the store, each with one or more decisions",
            action: "the load on Redis",
        };
        catalog.add(self.calls.clone(), calls);
        let batches = Description {
            name: "store_batch_requests",
            labels: &[],
            unit: "requests",
            meaning: "Requests that a script call decides together",
            action: "grows with the load; large batches with a growing `tidegate_store_call_seconds`: Redis is busy",
        };
        catalog.add(self.batches.clone(), batches);
        self.nodes.describe(catalog);
        let known_refusals = Description {
            name: "store_known_refusals",
            labels: &[],
            unit: "requests",
            meaning: "Requests rejected from the negative cache, without a call to the store",
            action: "grows with `limited`: clients repeat rejected requests without waiting for `Retry-After`",
        };
        catalog.add(self.known_refusals.clone(), known_refusals);
        let charged = Description {
            name: "store_charged_afterwards",
            labels: &[],
            unit: "permits",
            meaning: "Locally granted permits that were charged to the store later",
            action: "grows after an outage; without an outage, decisions reach the store too late",
        };
        catalog.add(self.charged.clone(), charged);
        let gateways = Description {
            name: "gateways",
            labels: &[],
            unit: "gateways",
            meaning: "Gateways that share the store, including this one; 0 for an embedded store",
            action: "differs from the number of running gateways: they use different Redis servers or prefixes",
        };
        catalog.add(self.gateways.clone(), gateways);
        let hashes = Description {
            name: "fleet_rule_hashes",
            labels: &[],
            unit: "hashes",
            meaning: "Different rule files in use by the gateways that share the store; 0 for an embedded store",
            action: "above 1 for longer than a rollout: gateways apply different rules; `tidegate fleet` lists them",
        };
        catalog.add(self.fleet_rule_hashes.clone(), hashes);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Records a decision of the store and its duration.
    pub fn store_decided(&self, took: Duration) {
        self.store.decisions.observe(took);
    }

    /// Sets the number of gateways that share the store.
    pub fn set_gateways(&self, gateways: u32) {
        self.store.gateways.set(gateways.into());
    }

    /// Sets the number of different rule files that the gateways on the store use.
    pub fn set_fleet_rule_hashes(&self, hashes: u32) {
        self.store.fleet_rule_hashes.set(hashes.into());
    }

    pub fn set_store_up(&self, is_up: bool) {
        self.store.up.set(is_up.into());
    }

    /// Returns the gauge of connections that are not used because the store is too slow.
    pub fn open_breakers(&self) -> BreakerGauge {
        BreakerGauge(self.store.open_breakers.clone())
    }

    /// Returns the number of connections that are not used because the store is too slow.
    pub fn open_breaker_count(&self) -> i64 {
        self.store.open_breakers.get()
    }

    /// Counts permits that were charged to the store after they had been granted without it.
    pub fn store_charged(&self, permits: u64) {
        self.store.charged.inc_by(permits);
    }

    /// Counts a call to the store that decides this many requests.
    pub fn store_called(&self, requests: usize) {
        self.store.calls.inc();
        self.store.batches.observe_size(u32::try_from(requests).unwrap_or(u32::MAX));
    }

    pub fn add_node(&self, address: String) -> NodeSeries {
        self.store.nodes.add(address)
    }

    /// Counts a request that was rejected by a cached refusal.
    pub fn known_refusal(&self) {
        self.store.known_refusals.inc();
    }

    /// Counts a failed decision of the store. `cause` is a fixed label.
    pub fn store_failed(&self, cause: &'static str) {
        self.store.failures.get_or_create(&CauseLabels { cause }).inc();
    }
}

// === impl BreakerGauge ===

impl BreakerGauge {
    /// Counts a connection that is not used.
    pub fn open(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0)
    }
}
