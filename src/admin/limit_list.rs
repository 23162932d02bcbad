//! The limits that operators see: of routes, and of the domains of the rate limit service.

use http::StatusCode;

use super::Active;
use super::problem::Problem;
use tidegate_config::Config;
use tidegate_limit::Mode;
use tidegate_rules::limits::rule::Limit;
use tidegate_service::{Domain, NamedLimit, Rate};

/// The error of an address as the client of a domain, whose clients are values of descriptors, also if they look like addresses.
pub(super) const NO_ADDRESSES: &str =
    "a limit of a domain knows no addresses: name the client by its values, or by `hash`";

/// The most slashes of a name that can separate a domain from its limit.
const MAX_SLASHES: usize = 64;

/// A limit with buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedLimit<'c> {
    /// The name of the route; `@` for a shared limit, and `/DOMAIN` for a limit of a domain.
    pub(super) route: &'c str,
    pub(super) limit: &'c Limit,
    /// The domain.
    pub(super) domain: Option<&'c Domain>,
    /// The keys of a descriptor whose values are counted separately. Empty for a limit of a route.
    keys: &'c str,
}

impl<'c> ListedLimit<'c> {
    fn of_route((route, limit): (&'c str, &'c Limit)) -> Self {
        Self { route, limit, domain: None, keys: "" }
    }

    fn of_domain(domain: &'c Domain, limit: &'c Limit, keys: &'c str) -> Self {
        Self { route: domain.route(), limit, domain: Some(domain), keys }
    }

    /// Returns the limit of a rule. Returns `None` if it has no buckets.
    fn of_rule(domain: &'c Domain, named: NamedLimit<'c>) -> Option<Self> {
        Some(Self::of_domain(domain, named.limit?, named.client))
    }

    /// Returns how the limit identifies clients. Returns `None` for an OVERALL limit.
    pub(super) fn client(&self) -> Option<String> {
        let client = || match self.domain {
            None => self.limit.client.to_string(),
            Some(_) => self.keys.to_owned(),
        };
        (self.limit.mode() == Mode::PerClient).then(client)
    }

    /// Returns `true` if callers set the rate of the limit.
    pub(super) fn is_of_callers(&self) -> bool {
        self.domain.is_some_and(|domain| domain.caller_limits().iter().any(|limit| std::ptr::eq(limit, self.limit)))
    }
}

/// Returns all limits of the rules that have buckets, in the order in which routes use them. Limits of domains come last.
pub(super) fn all(config: &Config) -> impl Iterator<Item = ListedLimit<'_>> {
    let of_routes = config.rules.limits().map(ListedLimit::of_route);
    let of_domain = |domain| Domain::rule_limits(domain).filter_map(|named| ListedLimit::of_rule(domain, named));
    of_routes.chain(domains(config).flat_map(of_domain))
}

/// Returns the limits whose rates callers set.
pub(super) fn of_callers(config: &Config) -> impl Iterator<Item = ListedLimit<'_>> {
    let of_domain = |domain| {
        Domain::caller_limits(domain).iter().map(move |limit| ListedLimit::of_domain(domain, limit, "all keys"))
    };
    domains(config).flat_map(of_domain)
}

/// Returns the domains of the rate limit service.
pub(super) fn domains(config: &Config) -> impl Iterator<Item = &Domain> {
    config.service.iter().flat_map(|service| service.domains.iter())
}

impl Active {
    /// Returns the domain with this route.
    pub(super) fn domain(&self, route: &str) -> Option<&Domain> {
        route.strip_prefix('/')?;
        domains(&self.config).find(|domain| domain.route() == route)
    }

    /// Returns the limit with these names. Names of domains and of their limits can contain slashes, as such or as `%2F`: if no
    /// limit has exactly these names, other slashes separate them.
    ///
    /// # Errors
    /// There is no such limit with buckets.
    pub(super) fn limit(&self, route: &str, limit: &str) -> Result<ListedLimit<'_>, Problem> {
        let exact = self.exact_limit(route, limit).or_else(|| self.exact_limit(&route.replace("%2F", "/"), limit));
        let found = exact.or_else(|| {
            let name = format!("{}/{limit}", route.strip_prefix('/')?);
            let splits = name.match_indices('/').take(MAX_SLASHES);
            let mut parts = splits.map(|(at, _)| (format!("/{}", &name[..at]), &name[at + 1..]));
            parts.find_map(|(route, limit)| self.exact_limit(&route, limit))
        });
        found.ok_or_else(|| self.no_limit(route, limit))
    }

    fn exact_limit(&self, route: &str, limit: &str) -> Option<ListedLimit<'_>> {
        let Some(domain) = self.domain(route) else {
            let mut limits = self.config.rules.limits();
            return limits.find(|(owner, other)| *owner == route && other.name == limit).map(ListedLimit::of_route);
        };
        let of_rule = domain.rule_limits().find(|named| named.name == limit);
        if of_rule.is_some() {
            return ListedLimit::of_rule(domain, of_rule?);
        }
        domain.limit(limit).map(|limit| ListedLimit::of_domain(domain, limit, "all keys"))
    }

    fn no_limit(&self, route: &str, limit: &str) -> Problem {
        let rule = self.domain(route).and_then(|domain| domain.rule_limits().find(|named| named.name == limit));
        let detail = match rule.map(|named| named.rule.rate) {
            Some(Rate::Unlimited) => "the limit is unlimited: it has no buckets",
            Some(_) => "the limit rejects all requests: it has no buckets",
            None => "no limit has this route and name",
        };
        Problem::new(StatusCode::NOT_FOUND, detail)
    }
}
