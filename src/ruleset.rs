//! One version of the rules, with what is prepared of them at load.

use http::HeaderValue;

use crate::admission::{Admitted, Denial, Passage, may_wait};
use crate::facts::Facts;
use crate::headers::Members;
use crate::metrics::{LimitMetrics, Metrics, RouteMetrics};
use crate::policy::policy;
use crate::route::Route;
use crate::rule::{Charges, Rules, Unjudged};

/// The rules that a request is judged by, from its first fact to its answer.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Rules,
    /// One for each route, in their order.
    prepared: Vec<Prepared>,
    /// Counts the answers to requests without a route.
    unrouted: RouteMetrics,
}

/// What a route needs at each request, made once.
#[derive(Debug)]
pub(crate) struct Prepared {
    metrics: RouteMetrics,
    limits: Vec<LimitMetrics>,
    /// May a limit of it let requests wait?
    pub(crate) may_wait: bool,
    /// Its `RateLimit-Policy`.
    pub(crate) policy: Option<HeaderValue>,
    /// What its `RateLimit` is made of.
    pub(crate) members: Members,
}

// === impl RuleSet ===

impl RuleSet {
    pub(crate) fn new(rules: Rules, metrics: &Metrics) -> Self {
        let prepared = rules.routes.iter().map(|route| Prepared::new(route, metrics)).collect();
        Self { rules, prepared, unrouted: metrics.route("") }
    }

    pub(crate) fn find(&self, facts: &Facts<'_>) -> Option<(&Route, &Prepared)> {
        let (position, route) = self.rules.routes.find(facts)?;
        Some((route, self.prepared.get(position)?))
    }

    pub(crate) fn charges<'r>(&'r self, route: &'r Route, facts: &Facts<'_>) -> Result<Charges<'r>, Unjudged<'r>> {
        self.rules.charges(route, facts)
    }

    pub(crate) fn passage<'r>(&self, route: &'r Route, facts: &Facts<'_>) -> Passage<'r> {
        Passage {
            upstream: route.upstream.as_ref(),
            peer: facts.peer,
            trusted_peer: self.rules.addresses.trusts(facts.peer),
        }
    }

    /// Where the answers of a route are counted.
    pub(crate) fn metrics<'r>(&'r self, route: Option<(&Route, &'r Prepared)>) -> &'r RouteMetrics {
        route.map_or(&self.unrouted, |(_, prepared)| &prepared.metrics)
    }
}

// === impl Prepared ===

impl Prepared {
    fn new(route: &Route, metrics: &Metrics) -> Self {
        let limits = route.limits.iter().map(|limit| metrics.limit(&route.name, &limit.name)).collect();
        let (policy, members) = match route.told.ietf {
            true => (policy(&route.limits), Members::new(&route.limits)),
            false => (None, Members::default()),
        };
        let may_wait = route.limits.iter().any(may_wait);
        Self { metrics: metrics.route(&route.name), limits, may_wait, policy, members }
    }

    /// Counts what each limit said. One that would have granted a request which another refused is not counted: it
    /// was not charged.
    pub(crate) fn count(&self, charges: &Charges<'_>, admitted: &Result<Admitted, Denial>) {
        let (standing, passed) = match admitted {
            Ok(Admitted { standing, .. }) => (Some(standing), true),
            Err(Denial::Limited { standing, .. }) => (Some(standing), false),
            Err(Denial::StoreFailed(_)) => (None, false),
        };
        for one in charges.iter() {
            let Some(counter) = self.limits.get(one.index) else { continue };
            match (standing.and_then(|standing| standing.said(one.index)), one.limit.shadow) {
                // Others were known to refuse it.
                (None, _) if standing.is_some() && !passed && !one.limit.limiter.quota.is_adopted() => {}
                (None, _) => counter.store_failed(),
                (Some(decision), _) if decision.granted && passed => counter.allowed(),
                (Some(decision), _) if decision.granted => {}
                (Some(_), true) => counter.shadow_limited(),
                (Some(_), false) => counter.limited(),
            }
        }
    }
}
