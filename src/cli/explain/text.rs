//! An explanation as text: the request, its route, its client.

use std::fmt;

use super::Explanation;
use super::limits::{limits, unclear};
use crate::client::{Trace, TraceEnd};
use crate::clock::Timestamp;
use crate::condition::Condition;
use crate::config::quote;
use crate::limit::{Charge, Wait};
use crate::rule::Limit;
use crate::rules::LimitCheck;

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request(f)?;
        self.route_found(f)?;
        self.passed_over(f)?;
        self.address(f)?;
        if let Some(route) = self.route() {
            limits(route, &self.checks, self.facts, self.now, f)?;
        }
        self.answer(f)
    }
}

impl Explanation<'_> {
    fn request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts;
        writeln!(f, "{} {}\n", facts.method, self.sent)?;
        writeln!(f, "request")?;
        writeln!(f, "  host  {}", if facts.host.is_empty() { "none" } else { &facts.host })?;
        let (matched, whole) = (facts.path.matched(), facts.path.normalized());
        write!(f, "  path  {matched}")?;
        if matched != whole {
            write!(f, ", forwarded as {whole}")?;
        }
        if self.sent.path() != whole {
            write!(f, ", sent as {}", self.sent.path())?;
        }
        writeln!(f)?;
        if let Some(peer) = facts.peer {
            writeln!(f, "  peer  {peer}")?;
        }
        for name in &self.removed {
            writeln!(f, "  {name} is removed: nothing is read of it")?;
        }
        writeln!(f)
    }

    fn route_found(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(route) = self.route() else { return writeln!(f, "no route\n") };
        write!(f, "route {}", quote(&route.name))?;
        match &route.upstream {
            Some(upstream) => writeln!(f, ", to upstream {}", quote(upstream))?,
            None => writeln!(f, ", to the service below")?,
        }
        let mut conditions = route.matcher.conditions().peekable();
        if conditions.peek().is_none() {
            writeln!(f, "  takes every request")?;
        }
        for condition in conditions {
            writeln!(f, "  {condition}: yes")?;
        }
        writeln!(f)
    }

    fn passed_over(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.search.passed_over.is_empty() {
            return Ok(());
        }
        writeln!(f, "passed over")?;
        for (route, condition) in &self.search.passed_over {
            writeln!(f, "  {}: not {condition}", quote(&route.name))?;
        }
        writeln!(f)
    }

    fn address(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Trace { proxies, address, end }) = &self.trace else { return Ok(()) };
        writeln!(f, "client address {address}")?;
        for (hop, proxy) in proxies.iter().enumerate() {
            writeln!(f, "  {proxy}, {}, is a trusted proxy: walked past", origin(hop))?;
        }
        write!(f, "  {address}, {}, ", origin(proxies.len()))?;
        match end {
            TraceEnd::Stranger => writeln!(f, "is no trusted proxy: what it forwards is not believed\n"),
            TraceEnd::Exhausted => writeln!(f, "is a trusted proxy, and forwarded for nobody else\n"),
            TraceEnd::Garbage(hop) => {
                let hop = String::from_utf8_lossy(hop);
                writeln!(f, "is a trusted proxy, but {} is no address: the walk ends\n", quote(hop.trim()))
            }
        }
    }

    fn answer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.route().is_none() {
            return writeln!(f, "answered with 404: no route matches");
        }
        if let Some((limit, LimitCheck::Deny(cause))) = self.denied() {
            return writeln!(f, "answered with 400: {} cannot judge it: {}", quote(&limit.name), unclear(limit, cause));
        }
        let live = || self.checks.iter().filter(|(limit, _)| !limit.shadow).filter_map(charged);
        match live().find(|(limit, charge)| never(limit, charge, self.now)) {
            Some((limit, _)) => writeln!(f, "answered with 429, always: {} never holds so much", quote(&limit.name)),
            None if live().next().is_some() => writeln!(f, "goes on if every live limit grants it, else 429"),
            None => writeln!(f, "goes on: no live limit counts it"),
        }?;
        if *self.facts.method == http::Method::TRACE {
            writeln!(f, "a gateway forwards no TRACE: what goes on is answered with 501")?;
        }
        Ok(())
    }
}

fn charged<'d>((limit, check): &'d (&Limit, LimitCheck)) -> Option<(&'d Limit, &'d Charge)> {
    match check {
        LimitCheck::Charge(charge) => Some((limit, charge)),
        LimitCheck::Skip(_) | LimitCheck::Deny(_) => None,
    }
}

fn never(limit: &Limit, charge: &Charge, now: Timestamp) -> bool {
    limit.limiter.quota.wait_when_drained(charge.permits, now) == Wait::Never
}

/// The source of an address.
fn origin(hop: usize) -> &'static str {
    if hop == 0 { "the peer" } else { "from x-forwarded-for" }
}

impl fmt::Display for Condition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "path {path}"),
            Self::Host(host) => write!(f, "host {host}"),
            Self::Methods(methods) => {
                let methods: Vec<_> = methods.iter().map(http::Method::as_str).collect();
                write!(f, "method {}", methods.join(" or "))
            }
            // The expected value is often a secret.
            Self::Header(name, _) => write!(f, "header {name} as asked for"),
        }
    }
}
