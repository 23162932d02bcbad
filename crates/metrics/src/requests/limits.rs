//! Metrics of limits. The series of a limit end with the last rules that use it.

use std::slice::from_ref;
use std::sync::Arc;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;
use crate::instruments::sample::{LimitSample, Sample};
use crate::instruments::used_share::UsedShare;
use crate::requests::budgets::{self, BudgetSeries, BudgetShare};
use crate::requests::routes::{LIMIT, ROUTE};

/// The names of [`Outcome`], in the order of its variants.
const OUTCOMES: [&str; 4] = ["allowed", "limited", "shadow_limited", "store_failed"];

/// The metrics of all limits, by route and limit.
#[derive(Debug, Default)]
pub(crate) struct Limits(ByName<LimitSeries, 2>);

/// The counters of one limit.
#[derive(Clone, Debug)]
pub struct LimitMetrics(Handle<LimitSeries, 2>);

#[derive(Debug, Default)]
struct LimitSeries {
    decisions: [Count; OUTCOMES.len()],
    overflow: Count,
    unknown_tiers: Count,
    used: UsedShare,
    budget: BudgetSeries,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Allowed,
    Limited,
    ShadowLimited,
    StoreFailed,
}

// === impl Limits ===

impl Limits {
    /// Adds the decisions and the used shares of all limits to a sample.
    pub(crate) fn sample(&self, sample: &mut Sample) {
        for limit in self.0.all() {
            let [route, name] = limit.names();
            let (decisions, used) = (limit.decisions.each_ref().map(Count::get), limit.used.current());
            if used.is_some() || decisions != [0; OUTCOMES.len()] {
                *sample.limit(route, name) = LimitSample { decisions, used };
            }
        }
    }

    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let decisions = Description {
            name: "decisions",
            labels: &[ROUTE, LIMIT, Label::Fixed("outcome", &OUTCOMES)],
            unit: "decisions",
            meaning: "Decisions of each limit. A limit that would have granted a rejected request counts nothing",
            action: "`limited` grows: `tidegate top` names the client; raise the rate if the client is legitimate. \
                     `shadow_limited` shows what a new limit would reject, or `on_limit` forwards. `store_failed`: see `tidegate_store_up`",
        };
        catalog.add(self.0.metric(decisions.labels, |limit| &limit.decisions), decisions);
        let used = Description {
            name: "limit_used_ratio",
            labels: &[ROUTE, LIMIT],
            unit: "0 to 1",
            meaning: "Used share of an OVERALL limit, as the last decision of this gateway saw it; of a limit in \
                      shards, of the shard that decided. Absent without a decision within the interval of the limit",
            action: "near 1: the limit rejects requests soon; raise the rate, or find the client with `tidegate top`",
        };
        catalog.add(self.0.metric(used.labels, |limit| from_ref(&limit.used)), used);
        let overflow = Description {
            name: "store_overflow",
            labels: &[ROUTE, LIMIT],
            unit: "decisions",
            meaning: "Decisions by the shared overflow bucket of a limit, because the embedded store had no capacity \
                      for another client",
            action: "clients share a bucket: use Redis, or a client key with fewer values",
        };
        catalog.add(self.0.metric(overflow.labels, |limit| from_ref(&limit.overflow)), overflow);
        let unknown_tiers = Description {
            name: "unknown_tiers",
            labels: &[ROUTE, LIMIT],
            unit: "requests",
            meaning: "Requests whose tier is not in the rule file, so that the default tier of the limit applied",
            action: "compare the tiers of keys and tokens with `tiers` in the rule file",
        };
        catalog.add(self.0.metric(unknown_tiers.labels, |limit| from_ref(&limit.unknown_tiers)), unknown_tiers);
        catalog.add(self.0.metric(budgets::SETTLED.labels, |limit| limit.budget.settled()), budgets::SETTLED);
        catalog.add(self.0.metric(budgets::DEBT.labels, |limit| limit.budget.debt()), budgets::DEBT);
        let missing = budgets::USAGE_MISSING;
        catalog.add(self.0.metric(missing.labels, |limit| limit.budget.usage_missing()), missing);
        catalog.add(self.0.metric(budgets::ENDED.labels, |limit| limit.budget.ended()), budgets::ENDED);
        catalog.add(self.0.metric(budgets::PASSED.labels, |limit| limit.budget.passed()), budgets::PASSED);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Returns the counters of one limit. They are exported until the handle and its clones are dropped.
    pub fn limit(&self, route: impl Into<Arc<str>>, limit: &str) -> LimitMetrics {
        LimitMetrics(self.limits.0.get_or_create([route.into(), limit.into()], LimitSeries::default))
    }
}

// === impl LimitMetrics ===

impl LimitMetrics {
    /// Counts a request that was granted.
    pub fn allowed(&self) {
        self.count(Outcome::Allowed);
    }

    /// Counts a request that was rejected.
    pub fn limited(&self) {
        self.count(Outcome::Limited);
    }

    /// Counts a request that a shadow limit would have rejected.
    pub fn shadow_limited(&self) {
        self.count(Outcome::ShadowLimited);
    }

    /// Counts a request for which the store failed, so that `on_store_failure` decided.
    pub fn store_failed(&self) {
        self.count(Outcome::StoreFailed);
    }

    /// Sets the number of milliseconds after which all permits of a decision are available again.
    pub fn set_retention(&self, millis: u64) {
        self.0.used.set_retention(millis);
    }

    /// Records that a decision left `remaining` of `capacity` permits of an OVERALL limit.
    pub fn record_remaining(&self, remaining: u32, capacity: u32) {
        self.0.used.record(remaining, capacity);
    }

    /// Counts requests whose tier is not in the rule file.
    pub fn had_unknown_tiers(&self, requests: u64) {
        self.0.unknown_tiers.inc_by(requests);
    }

    /// Counts a request that used the shared overflow bucket.
    pub fn overflowed(&self) {
        self.0.overflow.inc();
    }

    /// Returns the names of the route and the limit. The route of a shared limit is empty.
    pub fn names(&self) -> [&str; 2] {
        self.0.names()
    }

    /// Counts a cost that was charged to a budget, and the part of it that was not reserved, in permits.
    pub fn cost_settled(&self, permits: u32, unreserved: u32) {
        self.0.budget.add_cost(permits, unreserved);
    }

    /// Counts a request whose usage is absent, so that a budget was charged with all that it had reserved.
    pub fn usage_missing(&self) {
        self.0.budget.add_missing_usage();
    }

    /// Counts a stream that the gateway has ended, since the budget had no permits for more output.
    pub fn stream_ended(&self) {
        self.0.budget.add_end();
    }

    /// Counts a bucket whose settled costs have passed a share of its budget.
    pub fn budget_passed(&self, share: BudgetShare) {
        self.0.budget.add_passing(share);
    }

    fn count(&self, outcome: Outcome) {
        self.0.decisions[outcome as usize].inc();
    }
}
