//! Formats an explanation: the request, its route, its client and the result.

use std::borrow::Cow;
use std::fmt;

use super::Explanation;
use super::action::{describe_action, forwarded_path};
use super::limits::limits;
use super::original::ProxyRequest;
use tidegate_config::{Millis, quote};
use tidegate_limit::Wait;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::Charge;
use tidegate_rules::client::{AddressTrace, ClientSource, TraceEnd};
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::{Identity, IdentityValue, ServiceCheck};
use tidegate_rules::route::{Action, InheritedValue, OnLimit, Route};
use tidegate_rules::rules::LimitCheck;

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request(f)?;
        self.matched_route(f)?;
        self.other_routes(f)?;
        self.address(f)?;
        if let Some(route) = self.route() {
            self.identity(route, f)?;
            limits(self, route, f)?;
            if let (Some(concurrency), None) = (&route.concurrency, &self.proxy) {
                describe_concurrency(concurrency, f)?;
            }
        }
        self.result(f)
    }
}

impl Explanation<'_> {
    fn request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts;
        if let Some(ProxyRequest { request, route, .. }) = &self.proxy {
            writeln!(f, "{} {}\n", request.method, request.url)?;
            writeln!(f, "route {}: the proxy asks about\n", quote(&route.name))?;
        }
        writeln!(f, "{} {}\n", facts.method, self.sent)?;
        writeln!(f, "request")?;
        writeln!(f, "  host  {}", if facts.host.is_empty() { "none" } else { &facts.host })?;
        let (matched, whole) = (facts.path.matched(), facts.path.normalized());
        write!(f, "  path  {matched}")?;
        let forwarded = forwarded_path(self.route(), facts);
        if matched != forwarded && self.proxy.is_none() {
            write!(f, ", forwarded as {forwarded}")?;
        }
        if self.sent.path() != whole {
            write!(f, ", sent as {}", self.sent.path())?;
        }
        writeln!(f)?;
        if let Some(peer) = facts.peer {
            writeln!(f, "  peer  {peer}")?;
        }
        if self.lacks_body {
            writeln!(f, "  body  unknown, so limits find no values in it: add it with -d")?;
        }
        if let Some(calls) = facts.body.as_ref().map(|body| body.calls()).filter(|calls| *calls > 1) {
            writeln!(f, "  body  a batch of {calls} calls, all charged or none; this is the first one")?;
        }
        for name in &self.removed {
            writeln!(f, "  {name} is removed and has no effect")?;
        }
        writeln!(f)
    }

    fn matched_route(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(route) = self.route() else { return writeln!(f, "no route\n") };
        match &self.proxy {
            Some(_) => writeln!(f, "route {}", quote(&route.name))?,
            None => writeln!(f, "route {}, {}", quote(&route.name), describe_action(route))?,
        }
        let mut conditions = route.matcher.conditions().peekable();
        if conditions.peek().is_none() {
            writeln!(f, "  matches every request")?;
        }
        for condition in conditions {
            writeln!(f, "  {condition} matches")?;
        }
        for InheritedValue { key, location } in route.inherited.iter() {
            writeln!(f, "  {key} is inherited from {location}")?;
        }
        for change in self.changes.iter().filter(|_| self.proxy.is_none()) {
            writeln!(f, "  {change}")?;
        }
        writeln!(f)
    }

    fn other_routes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.search.passed_over.is_empty() {
            return Ok(());
        }
        writeln!(f, "routes that do not match")?;
        for (route, condition) in &self.search.passed_over {
            writeln!(f, "  {}: {condition} does not match", quote(&route.name))?;
        }
        writeln!(f)
    }

    fn address(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(AddressTrace { proxies, address, end }) = &self.trace else { return Ok(()) };
        writeln!(f, "client address {address}")?;
        for (hop, proxy) in proxies.iter().enumerate() {
            writeln!(f, "  {proxy}, {}, is a trusted proxy: skipped", origin(hop))?;
        }
        write!(f, "  {address}, {}, ", origin(proxies.len()))?;
        match end {
            TraceEnd::Untrusted => writeln!(f, "is not a trusted proxy: its forwarding fields are ignored\n"),
            TraceEnd::Exhausted => writeln!(f, "is a trusted proxy, and the last address that was forwarded\n"),
            TraceEnd::Invalid(hop) => {
                let hop = String::from_utf8_lossy(hop);
                writeln!(f, "is a trusted proxy, but {} is not an address: the search ends\n", quote(hop.trim()))
            }
        }
    }

    /// Writes the values of the credentials that the limits read.
    fn identity(&self, route: &Route, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(identity) = &self.facts.identity else { return Ok(()) };
        writeln!(f, "identity")?;
        let Identity { key, token, user, fault, .. } = &**identity;
        if let Some(fault) = fault {
            writeln!(f, "  {fault}: only limits by address count the request")?;
        } else if key.is_none() && token.is_none() && user.is_none() {
            writeln!(f, "  the request has no credentials")?;
        }
        if let Some(key) = key {
            writeln!(f, "  the API key of {}", quote(key.id()))?;
        }
        if token.is_some() {
            writeln!(f, "  a valid token")?;
        }
        if let Some(user) = user {
            writeln!(f, "  the password of {}", quote(user))?;
        }
        for value in identity_values(route) {
            match shown_value(value, identity, self.facts) {
                Some(text) => writeln!(f, "  {value} is {}", quote(&text))?,
                None => writeln!(f, "  {value} is missing")?,
            }
        }
        writeln!(f)
    }

    /// Describes the effect of limits that refuse the request.
    fn describe_refused(&self) -> String {
        match (self.refused_status(), self.route().and_then(|route| route.on_limit.as_ref())) {
            (None, Some(OnLimit::Upstream(name))) => format!("forwarded to upstream {}", quote(name)),
            (None, Some(OnLimit::Mark(name))) => format!("forwarded with the field {name}"),
            (status, _) => format!("answered with {}", status.unwrap_or(429)),
        }
    }

    fn result(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((status, reason)) = self.rejection() {
            return writeln!(f, "answered with {status}: {reason}");
        }
        let action = match (self.route(), &self.proxy) {
            (Some(route), Some(proxy)) => proxy.describe_action(route),
            (Some(route), None) if !matches!(route.action, Action::Forward(_)) => describe_action(route),
            _ => "forwarded".to_owned(),
        };
        let refused = self.describe_refused();
        let live = || self.checks.iter().filter(|(limit, _)| !limit.shadow).filter_map(charged);
        match live().find(|(_, charge)| is_never_granted(charge, self.now)) {
            Some((limit, _)) => {
                writeln!(f, "{refused}, always: {} never has enough permits", quote(&limit.name))
            }
            None if live().next().is_some() => {
                writeln!(f, "{action} if every live limit grants it, otherwise {refused}")
            }
            None => writeln!(f, "{action}: no live limit counts it"),
        }?;
        if let Some(ServiceCheck { url, .. }) = self.service() {
            writeln!(f, "after the limits, {} must allow it; it is not asked now", quote(&url.to_string()))?;
        }
        if self.proxy.is_some() {
            return Ok(());
        }
        if self.route().is_some_and(|route| route.concurrency.is_some()) {
            writeln!(f, "without a free slot, answered with 429 or 503")?;
        }
        match self.failure_to_forward() {
            Some((status, reason)) => writeln!(f, "answered with {status} instead: {reason}"),
            None => Ok(()),
        }
    }
}

fn describe_concurrency(concurrency: &Concurrency, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "requests in flight")?;
    if let Some(max) = concurrency.max {
        writeln!(f, "  at most {max} of the route")?;
    }
    if let Some(per_client) = concurrency.per_client {
        writeln!(f, "  at most {per_client} of each {}", quote(&concurrency.client.to_string()))?;
    }
    match concurrency.queue {
        0 => writeln!(f, "  further requests are rejected immediately\n"),
        queue => {
            let max_wait = u64::try_from(concurrency.max_wait.as_millis()).unwrap_or(u64::MAX);
            let of_client = concurrency.per_client.map_or_else(String::new, |one| format!(", {one} of each client,"));
            let max_wait = Millis::show(max_wait);
            writeln!(f, "  in each gateway, up to {queue} further requests{of_client} wait for up to {max_wait}\n")
        }
    }
}

/// Returns the values of credentials that limits and conditions of a route read.
fn identity_values(route: &Route) -> Vec<&IdentityValue> {
    let sources = route.limits.iter().flat_map(|limit| limit.client.sources());
    let required = route.require.alternatives().iter().flat_map(|alternative| &alternative.conditions);
    let conditions = required.chain(&route.matcher.identity).map(|condition| &condition.value);
    let mut values: Vec<_> = sources.filter_map(ClientSource::identity_value).chain(conditions).collect();
    values.sort_by_key(ToString::to_string);
    values.dedup();
    values
}

/// Returns a value as text; arrays and objects as JSON.
fn shown_value<'f>(value: &IdentityValue, identity: &'f Identity, facts: &'f Facts<'f>) -> Option<Cow<'f, str>> {
    let nested = || match value {
        IdentityValue::Claim(claim) => Some(identity.token.as_ref()?.find(claim)?.to_string().into()),
        _ => None,
    };
    facts.identity_value(value).or_else(nested)
}

fn charged<'d>((limit, check): &'d (&Limit, LimitCheck)) -> Option<(&'d Limit, &'d Charge)> {
    match check {
        LimitCheck::Charge(charge) => Some((limit, charge)),
        LimitCheck::Skip(_) | LimitCheck::Unmet | LimitCheck::Deny(_) => None,
    }
}

fn is_never_granted(charge: &Charge, now: Timestamp) -> bool {
    charge.limiter.quota.wait_when_drained(charge.permits, now) == Wait::Never
}

/// Describes where an address comes from.
fn origin(hop: usize) -> &'static str {
    if hop == 0 { "the peer" } else { "from x-forwarded-for" }
}
