//! The domains of the rate limit service, compiled at load.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;

use crate::limit_counters::LimitCounters;
use crate::rejected::{Cause, LimitId};
use tidegate_metrics::{CallMetrics, Metrics, WaitMetrics};
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::rule::Limit;
use tidegate_service::{AnswerSettings, Domain, Domains, LimitPaths};

/// All domains, with their counters.
#[derive(Debug)]
pub struct CompiledDomains {
    domains: Arc<Domains>,
    /// By the name of the domain.
    counters: HashMap<String, DomainCounters>,
    /// The names of the domains by their routes.
    by_route: HashMap<String, String>,
    /// Counts the calls without a domain.
    others: CallMetrics,
    takes: TakeMetrics,
}

/// The counters of requests for permits by the names of limits.
#[derive(Debug)]
pub struct TakeMetrics {
    pub calls: CallMetrics,
    pub waits: WaitMetrics,
}

/// The route of requests for permits in metrics. No route and no domain has this name.
const TAKE_ROUTE: &str = "@take";

/// The counters of a domain.
#[derive(Debug)]
struct DomainCounters {
    limits: LimitCounters,
    calls: CallMetrics,
    /// The identity of bans, for operators.
    bans: LimitId,
    /// Made when a program or an operator first names a limit of the domain.
    paths: OnceLock<LimitPaths>,
}

/// A domain, with its counters.
#[derive(Clone, Copy, Debug)]
pub struct FoundDomain<'d> {
    pub domain: &'d Domain,
    pub limits: &'d LimitCounters,
    pub calls: &'d CallMetrics,
    pub bans: LimitId,
    paths: &'d OnceLock<LimitPaths>,
}

impl CompiledDomains {
    pub fn new(domains: Arc<Domains>, metrics: &Metrics) -> Self {
        let counters = |domain: &Domain| {
            let route: Arc<str> = domain.route().into();
            let limits = LimitCounters::new(&route, domain.limits(), metrics);
            let bans = LimitId::of_cause(&route, Cause::Banned);
            (
                domain.name().to_owned(),
                DomainCounters { limits, calls: metrics.calls(route), bans, paths: OnceLock::new() },
            )
        };
        let by_route = domains.iter().map(|domain| (domain.route().to_owned(), domain.name().to_owned()));
        Self {
            counters: domains.iter().map(counters).collect(),
            by_route: by_route.collect(),
            domains,
            others: metrics.calls(""),
            takes: TakeMetrics { calls: metrics.calls(TAKE_ROUTE), waits: metrics.waits(TAKE_ROUTE) },
        }
    }

    /// Returns the domain with this name.
    pub fn find(&self, name: &str) -> Option<FoundDomain<'_>> {
        let (domain, DomainCounters { limits, calls, bans, paths }) =
            (self.domains.get(name)?, self.counters.get(name)?);
        Some(FoundDomain { domain, limits, calls, bans: *bans, paths })
    }

    /// Returns the limit of a domain, given the route of the domain.
    pub fn find_limit(&self, route: &str, limit: &str) -> Option<(&str, &Limit)> {
        let found = self.find(self.by_route.get(route)?)?;
        let limit = found.domain.limit_on(found.paths(), limit).or_else(|| found.domain.limit(limit))?;
        Some((found.domain.route(), limit))
    }

    /// Returns the domain with this route, see [`Domain::route`], or with this name after a slash.
    pub fn find_route(&self, route: &str) -> Option<FoundDomain<'_>> {
        let name = self.by_route.get(route).map(String::as_str);
        self.find(name.or_else(|| route.strip_prefix('/'))?)
    }

    /// Returns the optional content of answers.
    pub fn answers(&self) -> &AnswerSettings {
        self.domains.answers()
    }

    /// Returns `true` if a control plane has not sent its domains yet.
    pub fn are_partial(&self) -> bool {
        self.domains.is_partial()
    }

    /// Returns the counters of the calls without a domain.
    pub fn others(&self) -> &CallMetrics {
        &self.others
    }

    /// Returns the counters of requests for permits.
    pub fn takes(&self) -> &TakeMetrics {
        &self.takes
    }

    /// Returns the limiters of all limits.
    pub fn limiters(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        self.domains.iter().flat_map(Domain::limits).map(|limit| &limit.limiter)
    }
}

impl<'d> FoundDomain<'d> {
    /// Returns the paths to the limits of the domain.
    pub fn paths(&self) -> &'d LimitPaths {
        self.paths.get_or_init(|| self.domain.paths())
    }
}
