//! The domains of the rate limit service, compiled at load.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::limit_counters::LimitCounters;
use tidegate_metrics::{CallMetrics, Metrics};
use tidegate_rules::charge::Limiter;
use tidegate_service::{Domain, Domains};

/// All domains, with their counters.
#[derive(Debug)]
pub struct CompiledDomains {
    domains: Arc<Domains>,
    /// By the name of the domain.
    counters: HashMap<String, DomainCounters>,
    /// Counts the calls without a domain.
    others: CallMetrics,
}

/// The counters of a domain.
#[derive(Debug)]
struct DomainCounters {
    limits: LimitCounters,
    calls: CallMetrics,
}

/// A domain, with its counters.
#[derive(Clone, Copy, Debug)]
pub struct FoundDomain<'d> {
    pub domain: &'d Domain,
    pub limits: &'d LimitCounters,
    pub calls: &'d CallMetrics,
}

impl CompiledDomains {
    pub fn new(domains: Arc<Domains>, metrics: &Metrics) -> Self {
        let counters = |domain: &Domain| {
            let route: Arc<str> = domain.route().into();
            let limits = LimitCounters::new(&route, domain.limits(), metrics);
            (domain.name().to_owned(), DomainCounters { limits, calls: metrics.calls(route) })
        };
        Self { counters: domains.iter().map(counters).collect(), domains, others: metrics.calls("") }
    }

    /// Returns the domain with this name.
    pub fn find(&self, name: &str) -> Option<FoundDomain<'_>> {
        let (domain, DomainCounters { limits, calls }) = (self.domains.get(name)?, self.counters.get(name)?);
        Some(FoundDomain { domain, limits, calls })
    }

    /// Returns the counters of the calls without a domain.
    pub fn others(&self) -> &CallMetrics {
        &self.others
    }

    /// Returns the limiters of all limits.
    pub fn limiters(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        self.domains.iter().flat_map(Domain::limits).map(|limit| &limit.limiter)
    }
}
