//! Metrics of limits. The series of a limit end with the last rules that use it.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;
use super::routes::ROUTE;
#[cfg(feature = "gateway")]
use super::sample::Sample;
use super::series_users::SeriesUser;
use super::used_share::UsedShare;

/// The outcomes of a decision.
pub(super) const OUTCOMES: [&str; 4] = ["allowed", "limited", "shadow_limited", "store_failed"];

const LIMIT: Label = Label::Open("limit");

/// The metrics of all limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    decisions: Family<DecisionLabels, Counter>,
    overflow: Family<LimitLabels, Counter>,
    unknown_tiers: Family<LimitLabels, Counter>,
    used: Family<LimitLabels, UsedShare>,
}

/// The counters of one limit.
#[derive(Clone, Debug)]
pub(crate) struct LimitMetrics {
    allowed: Counter,
    limited: Counter,
    shadow_limited: Counter,
    store_failed: Counter,
    /// The family of all limits, and the labels of this one. The series is only created when needed, which is rare.
    overflow: (Family<LimitLabels, Counter>, LimitLabels),
    unknown_tiers: Family<LimitLabels, Counter>,
    used: UsedShare,
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

// === impl Limits ===

impl Limits {
    /// Adds the decisions and the used shares of all limits to a sample.
    #[cfg(feature = "gateway")]
    pub(super) fn sample(&self, sample: &mut Sample) {
        self.decisions.for_each(|DecisionLabels { route, limit, outcome }, counter| {
            let position = OUTCOMES.iter().position(|other| other == outcome);
            if let (Some(position), count @ 1..) = (position, counter.get()) {
                sample.limit(route, limit).decisions[position] = count;
            }
        });
        self.used.for_each(|LimitLabels { route, limit }, used| {
            if let Some(share) = used.current() {
                sample.limit(route, limit).used = Some(share);
            }
        });
    }

    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let decisions = Description {
            name: "decisions",
            labels: &[ROUTE, LIMIT, Label::Fixed("outcome", &OUTCOMES)],
            unit: "decisions",
            meaning: "Decisions of each limit. A limit that would have granted a rejected request counts nothing",
            action: "`limited` grows: `tidegate top` names the client; raise the rate if the client is legitimate. \
                     `shadow_limited` shows what a new limit would reject. `store_failed`: see `tidegate_store_up`",
        };
        catalog.add(self.decisions.clone(), decisions);
        let used = Description {
            name: "limit_used_ratio",
            labels: &[ROUTE, LIMIT],
            unit: "0 to 1",
            meaning: "Used share of an OVERALL limit, as the last decision of this gateway saw it; of a limit in \
                      shards, of the shard that decided. Absent without a decision within the interval of the limit",
            action: "near 1: the limit rejects requests soon; raise the rate, or find the client with `tidegate top`",
        };
        catalog.add(self.used.clone(), used);
        let overflow = Description {
            name: "store_overflow",
            labels: &[ROUTE, LIMIT],
            unit: "decisions",
            meaning: "Decisions by the shared overflow bucket of a limit, because the embedded store had no capacity \
                      for another client",
            action: "clients share a bucket: use Redis, or a client key with fewer values",
        };
        catalog.add(self.overflow.clone(), overflow);
        let unknown_tiers = Description {
            name: "unknown_tiers",
            labels: &[ROUTE, LIMIT],
            unit: "requests",
            meaning: "Requests whose tier is not in the rule file, so that the default tier of the limit applied",
            action: "compare the tiers of keys and tokens with `tiers` in the rule file",
        };
        catalog.add(self.unknown_tiers.clone(), unknown_tiers);
    }
}

impl Metrics {
    /// Returns the counters of one limit. They are exported until the handle and its clones are dropped.
    pub(crate) fn limit(&self, route: &str, limit: &str) -> LimitMetrics {
        let names = LimitLabels { route: route.to_owned(), limit: limit.to_owned() };
        let labels = |names: &LimitLabels, outcome| {
            let LimitLabels { route, limit } = names.clone();
            DecisionLabels { route, limit, outcome }
        };
        let Limits { decisions, overflow, unknown_tiers, used } = &self.limits;
        let (all, all_overflow, all_used) = (decisions.clone(), overflow.clone(), used.clone());
        let all_unknown = unknown_tiers.clone();
        let removed = names.clone();
        let _user = self.users.add((route.to_owned(), Some(limit.to_owned())), move || {
            OUTCOMES.iter().for_each(|outcome| all.remove(&labels(&removed, outcome)));
            all_overflow.remove(&removed);
            all_unknown.remove(&removed);
            all_used.remove(&removed);
        });
        let [allowed, limited, shadow_limited, store_failed] =
            OUTCOMES.map(|outcome| decisions.get_or_create(&labels(&names, outcome)));
        let (used, overflow) = (used.get_or_create(&names), (overflow.clone(), names));
        let unknown_tiers = unknown_tiers.clone();
        LimitMetrics { allowed, limited, shadow_limited, store_failed, overflow, unknown_tiers, used, _user }
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

    /// Sets the number of milliseconds after which all permits of a decision are available again.
    pub(crate) fn set_retention(&self, millis: u64) {
        self.used.set_retention(millis);
    }

    /// Records that a decision left `remaining` of `capacity` permits of an OVERALL limit.
    pub(crate) fn record_remaining(&self, remaining: u32, capacity: u32) {
        self.used.record(remaining, capacity);
    }

    /// Counts requests with an unknown tier.
    pub(crate) fn had_unknown_tiers(&self, requests: u64) {
        if requests > 0 {
            self.unknown_tiers.get_or_create(&self.overflow.1).inc_by(requests);
        }
    }

    /// Counts a request that used the shared overflow bucket.
    pub(crate) fn overflowed(&self) {
        let (counters, labels) = &self.overflow;
        counters.get_or_create(labels).inc();
    }
}
