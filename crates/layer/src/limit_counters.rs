//! Counts the decisions of limits: of a route, or of a domain of the rate limit service.

use std::sync::Arc;

use crate::admission::{Admitted, Denial};
use crate::rejected::LimitId;
use tidegate_metrics::{LimitMetrics, Metrics};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::rules::{Charges, LimitCharge};

/// The counters of some limits, in their order.
#[derive(Debug)]
pub struct LimitCounters {
    limits: Vec<LimitMetrics>,
    /// The identities of the limits, for operators.
    ids: Vec<LimitId>,
}

/// The result of a request, for the counters of its limits.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Whether the limits decided, and not the failure of the store.
    is_by_limits: bool,
    passed: bool,
    /// Whether this gateway's shares of the limits decided.
    is_local: bool,
}

impl Verdict {
    pub fn new(charges: &Charges<'_>, admitted: &Result<Admitted, Denial>) -> Self {
        let (is_by_limits, passed) = match admitted {
            Ok(_) => (true, true),
            Err(Denial::Limited { .. }) => (true, false),
            Err(Denial::StoreFailed(_) | Denial::Busy { .. }) => (false, false),
        };
        Self { is_by_limits, passed, is_local: charges.is_local() }
    }
}

impl LimitCounters {
    /// Returns the counters of the limits of a route or a domain. A shared limit has one counter for all of its routes.
    pub fn new(route: &Arc<str>, limits: &[Limit], metrics: &Metrics) -> Self {
        let counters = |limit: &Limit| {
            let owner = if limit.is_shared { Arc::from("") } else { Arc::clone(route) };
            let counters = metrics.limit(owner, &limit.name);
            counters.set_retention(limit.limiter.quota.retention_millis());
            counters
        };
        let id = |limit: &Limit| LimitId::new(limit.owner(route), &limit.name);
        Self { limits: limits.iter().map(counters).collect(), ids: limits.iter().map(id).collect() }
    }

    /// Returns the counters of the limit at this position.
    pub fn metrics(&self, index: usize) -> Option<&LimitMetrics> {
        self.limits.get(index)
    }

    /// Returns the identity of the limit at this position.
    pub fn id(&self, index: usize) -> Option<LimitId> {
        self.ids.get(index).copied()
    }

    /// Counts the decision of each limit. A limit that would have granted a rejected request counts nothing, since it
    /// was not charged. Calls `rejected` with each limit that rejects the request.
    pub fn count(
        &self,
        charges: &Charges<'_>,
        admitted: &Result<Admitted, Denial>,
        rejected: impl Fn(&LimitCharge<'_>),
    ) {
        let verdict = Verdict::new(charges, admitted);
        for entry in charges.iter() {
            self.count_one(entry.index, &entry, verdict, &rejected);
        }
    }

    /// Counts the decision of the limit at this position. See [`count`](Self::count).
    pub fn count_one(
        &self,
        index: usize,
        entry: &LimitCharge<'_>,
        Verdict { is_by_limits, passed, is_local }: Verdict,
        rejected: impl Fn(&LimitCharge<'_>),
    ) {
        let Some(counter) = self.limits.get(index) else { return };
        if let Some(rates) = &entry.limit.rates {
            counter.had_unknown_tiers(rates.take_unknown());
        }
        let decision = entry.decision.filter(|_| is_by_limits);
        if decision.is_some_and(|decision| decision.overflow) {
            counter.overflowed();
        }
        if let Some(decision) = decision.filter(|_| !is_local)
            && let Some(capacity) = entry.limit.limiter.unused_permits(decision.shard)
        {
            counter.record_remaining(decision.remaining, capacity);
        }
        match (decision, entry.is_shadow()) {
            // Not asked: a cached refusal of other limits rejected the request.
            (None, _) if is_by_limits && !passed && !entry.limit.limiter.quota.is_adopted() => {}
            (None, _) => counter.store_failed(),
            (Some(decision), _) if decision.granted && passed && is_local => counter.store_failed(),
            (Some(decision), _) if decision.granted && passed => counter.allowed(),
            (Some(decision), _) if decision.granted => {}
            (Some(_), true) => counter.shadow_limited(),
            (Some(_), false) => {
                counter.limited();
                rejected(entry);
            }
        }
    }
}
