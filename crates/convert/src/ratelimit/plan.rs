//! The limits of routes: what the actions of a route find in a domain.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::actions::{Part, Source};
use super::domain::{Rate, Rule, RuleLimit, Unit};
use super::values::is_wild;
use crate::draft::value::Value;
use crate::draft::{Algorithm, Draft, Interval, Limit, LimitUse, Match, Mode, valid_name};
use crate::report::{Place, Report};

/// The largest rate of a limit.
const MAX_RATE: u64 = 2_147_483_648;

/// The most limits of a route, as in the rule file.
const MAX_LIMITS: usize = 100;

/// The most rules of one key and one level, if a value of the request selects one of them: each excludes those before.
const MAX_VALUES: usize = 200;

/// A limit that a list of actions finds.
#[derive(Clone, Debug)]
pub(super) struct Found<'d> {
    rule: &'d Rule,
    limit: &'d RuleLimit,
    /// The descriptor: limits with equal ones have the same counter.
    id: String,
    client: Vec<String>,
    when: Match,
    skips: bool,
}

/// How the requests of a filter are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge<'a> {
    /// The name of the domain, or of the filter.
    pub(super) scope: &'a str,
    pub(super) on_store_failure: Option<&'static str>,
    pub(super) permits: u64,
    /// The number of processes that count separately.
    pub(super) replicas: u64,
    pub(super) shadow: bool,
}

/// The limits of all routes. Limits of several routes with the same counter become shared limits.
#[derive(Debug, Default)]
pub(super) struct Plan {
    limits: Vec<Planned>,
    numbers: HashMap<String, usize>,
    places: HashSet<(Arc<str>, u32)>,
}

#[derive(Debug)]
struct Planned {
    limit: Limit,
    /// The numbers of its routes.
    routes: Vec<usize>,
}

/// Why a limit cannot be written.
pub(super) type Lost = &'static str;

/// Returns the limits that the parts of a descriptor find among these rules.
///
/// # Errors
/// Fails with a reason if there are too many.
pub(super) fn find<'d>(rules: &'d [Rule], parts: &[Part]) -> Result<Vec<Found<'d>>, Lost> {
    let mut found = Vec::new();
    if let Some(any) = rules.first() {
        let start = Branch { rule: any, id: String::new(), client: Vec::new(), when: Match::default(), skips: false };
        walk(rules, parts, &start, None, &mut found)?;
    }
    Ok(found)
}

/// A way through the tree of rules.
#[derive(Clone)]
struct Branch<'d> {
    rule: &'d Rule,
    id: String,
    client: Vec<String>,
    when: Match,
    skips: bool,
}

fn walk<'d>(
    rules: &'d [Rule],
    parts: &[Part],
    branch: &Branch<'d>,
    limit: Option<&'d RuleLimit>,
    found: &mut Vec<Found<'d>>,
) -> Result<(), Lost> {
    let Some((part, rest)) = parts.split_first() else {
        if let Some(limit) = limit {
            let Branch { rule, id, client, when, skips } = branch.clone();
            found.push(Found { rule, limit, id, client, when, skips });
        }
        return match found.len() > MAX_LIMITS {
            true => Err("more limits than a route can have"),
            false => Ok(()),
        };
    };
    let mut enter = |next: Branch<'d>| {
        let rule = next.rule;
        walk(&rule.rules, rest, &next, rule.limit.as_ref(), found)
    };
    match part {
        Part::Fixed { key, value, when } => {
            if let Some(rule) = rule_of(rules, key, value)
                && let Some(when) = both(&branch.when, when)
            {
                let shown = if rule.shares_bucket { rule.value.as_deref().unwrap_or(value) } else { value };
                enter(Branch { rule, when, id: format!("{}|{key}={shown}", branch.id), ..branch.clone() })?;
            }
        }
        Part::Client { key, source, optional } => {
            client_branches(rules, key, source, branch)?.into_iter().try_for_each(&mut enter)?;
            if *optional && let Some(when) = both(&branch.when, &source.absent()) {
                walk(rules, rest, &Branch { when, ..branch.clone() }, limit, found)?;
            }
        }
    }
    Ok(())
}

/// Returns the rule of a fixed value: exactly this value, then wildcards in the order of the file, then any value.
fn rule_of<'d>(rules: &'d [Rule], key: &str, value: &str) -> Option<&'d Rule> {
    let same = || rules.iter().filter(|rule| rule.key == key);
    let exact = same().find(|rule| rule.value.as_deref() == Some(value));
    let wild = || same().find(|rule| rule.value.as_deref().is_some_and(|own| is_wild(own) && matches_wild(own, value)));
    exact.or_else(wild).or_else(|| same().find(|rule| rule.value.is_none()))
}

/// Returns a branch for each rule that a value of the client can have.
fn client_branches<'d>(
    rules: &'d [Rule],
    key: &str,
    source: &Source,
    branch: &Branch<'d>,
) -> Result<Vec<Branch<'d>>, Lost> {
    let rank = |rule: &Rule| match rule.value.as_deref() {
        Some(value) if !is_wild(value) => 0,
        Some(_) => 1,
        None => 2,
    };
    let mut same: Vec<&Rule> = rules.iter().filter(|rule| rule.key == key).collect();
    if same.len() > MAX_VALUES {
        return Err("more values of one key than conditions can distinguish");
    }
    same.sort_by_key(|rule| rank(rule));
    let (mut branches, mut earlier) = (Vec::new(), Vec::new());
    for rule in same {
        let mut next = Branch { rule, ..branch.clone() };
        match &rule.value {
            Some(value) if !is_wild(value) => next.id += &format!("|{key}={value}"),
            value => {
                next.id += &format!("|{key}~{}~{}", value.as_deref().unwrap_or("*"), source.client());
                if !rule.shares_bucket {
                    next.client.push(source.client());
                }
                next.skips |= source.can_be_absent();
                next.when.not.extend(earlier.iter().cloned());
            }
        }
        if let Some(value) = rule.value.as_deref() {
            // An address has no value such as a name.
            let Some(own) = source.has(value) else { continue };
            let Some(when) = both(&next.when, &own) else { continue };
            next.when = when;
            earlier.push(own);
        }
        branches.push(next);
    }
    Ok(branches)
}

/// Returns the conditions of both, or `None` if both have different conditions for the same value.
fn both(left: &Match, right: &Match) -> Option<Match> {
    let mut both = left.clone();
    let maps = [(&mut both.headers, &right.headers), (&mut both.query, &right.query)];
    for (own, more) in maps {
        for (name, value) in &more.entries {
            match own.get(name) {
                Some(other) if other != value => return None,
                _ => own.set(name, value.clone()),
            }
        }
    }
    for (own, more) in
        [(&mut both.paths, &right.paths), (&mut both.hosts, &right.hosts), (&mut both.methods, &right.methods)]
    {
        match (own.is_empty(), more.is_empty()) {
            (_, true) => {}
            (true, false) => own.clone_from(more),
            (false, false) if own == more => {}
            (false, false) => return None,
        }
    }
    match (both.clients.is_empty(), right.clients.is_empty()) {
        (_, true) => {}
        (true, false) => both.clients.clone_from(&right.clients),
        (false, false) => return None,
    }
    both.not.extend(right.not.iter().cloned());
    Some(both)
}

/// Returns `true` if the pattern matches the value: each `*` stands for any characters.
fn matches_wild(pattern: &str, value: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = value.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

// === impl Found ===

impl Found<'_> {
    /// Returns the limit of the rule file, or `None` if the rule has no bound.
    ///
    /// # Errors
    /// Fails with a reason if the rule file cannot have the limit.
    fn limit(&self, charge: &Charge<'_>) -> Result<Option<Limit>, Lost> {
        if self.limit.combines.is_some() {
            return Err("depends on the other limits of a request");
        }
        let wish = self.limit.name.clone().unwrap_or_else(|| self.rule.show());
        let mut limit = Limit {
            name: valid_name(&wish),
            mode: if self.client.is_empty() { Mode::Overall } else { Mode::PerClient },
            client: self.client.clone(),
            permits: (charge.permits != 1).then_some(Value::Number(charge.permits)),
            when: self.when.clone(),
            shadow: self.limit.shadow || charge.shadow,
            on_store_failure: charge.on_store_failure,
            on_missing_client: (self.skips && !self.client.is_empty()).then_some("skip"),
            place: Some(self.limit.place.clone()),
            ..Limit::default()
        };
        if !set_rate(&mut limit, self.limit.rate, charge.replicas)? {
            return Ok(None);
        }
        if limit.rate.is_some_and(|rate| charge.permits > rate) {
            return Err("`hits_addend` is above the rate");
        }
        Ok(Some(limit))
    }
}

/// Sets the rate of a limit. Returns `false` if there is no bound.
///
/// # Errors
/// Fails with a reason for a rate of 0.
pub(super) fn set_rate(limit: &mut Limit, rate: Rate, replicas: u64) -> Result<bool, Lost> {
    let (requests, (interval, algorithm)) = match rate {
        Rate::Unlimited => return Ok(false),
        Rate::Window(requests, length) => (requests, (Interval::Time(length), None)),
        Rate::Bucket { size, fill, interval } => {
            limit.burst = Some((size * replicas).min(MAX_RATE));
            (fill * replicas, (Interval::Time(interval), Some(Algorithm::Gcra)))
        }
        Rate::Limited(requests, Unit::Year) => (requests, (Interval::Time(Unit::Year.length()), None)),
        Rate::Limited(requests, unit) => (requests, (Interval::Calendar(unit.word()), Some(Algorithm::FixedWindow))),
    };
    if requests == 0 || limit.burst == Some(0) {
        return Err("a rate is at least 1: write `respond: { status: 429 }` in the route");
    }
    limit.rate = Some(requests.min(MAX_RATE));
    limit.interval = Some(interval);
    limit.algorithm = algorithm;
    Ok(true)
}

// === impl Plan ===

impl Plan {
    /// Adds the limits to the route with this number. Returns their names.
    ///
    /// # Errors
    /// Fails with a reason if the rule file cannot have one of the limits. The others are added.
    pub(super) fn add(&mut self, found: &[Found<'_>], charge: &Charge<'_>, route: usize) -> Result<Vec<String>, Lost> {
        let (mut names, mut lost) = (Vec::new(), None);
        for found in found {
            match found.limit(charge) {
                Ok(Some(limit)) => {
                    names.push(limit.name.clone());
                    let id = format!("{}{}|{:?}|{}", charge.scope, found.id, limit.when, charge.permits);
                    self.add_limit(id, limit, route);
                }
                Ok(None) => names.push("unlimited".to_owned()),
                Err(reason) => lost = Some(reason),
            }
        }
        lost.map_or(Ok(names), Err)
    }

    /// Adds a limit of one bucket for all requests of its routes, with this id.
    pub(super) fn add_limit(&mut self, id: String, limit: Limit, route: usize) {
        if let Some(place) = &limit.place {
            self.places.insert((Arc::clone(&place.file), place.line));
        }
        let next = self.limits.len();
        let number = *self.numbers.entry(id).or_insert(next);
        if number == next {
            self.limits.push(Planned { limit, routes: Vec::new() });
        }
        let routes = &mut self.limits[number].routes;
        // The limits of a route are added one after the other.
        if routes.last() != Some(&route) {
            routes.push(route);
        }
    }

    /// Returns `true` if a route has the limit at this place.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.places.contains(&(Arc::clone(&place.file), place.line))
    }

    /// Returns `true` if a limit of a route from this number uses the address of the client.
    pub(super) fn uses_addresses(&self, from: usize) -> bool {
        let uses = |limit: &Limit| limit.client.iter().any(|source| source == "ip") || has_clients(&limit.when);
        self.limits.iter().any(|planned| uses(&planned.limit) && planned.routes.iter().any(|route| *route >= from))
    }

    /// Writes the limits into the routes of the draft, and reports routes with several limits.
    pub(super) fn finish(self, draft: &mut Draft, report: &mut Report) {
        for Planned { mut limit, routes } in self.limits {
            let place = limit.place.clone();
            let used = match routes.as_slice() {
                [only] => {
                    limit.name =
                        draft.routes.get(*only).map_or_else(String::new, |it| own_name(&it.limits, &limit.name));
                    LimitUse::Own(Box::new(limit))
                }
                _ => {
                    limit.name = draft.limit_name(&limit.name);
                    let name = limit.name.clone();
                    draft.limits.push(limit);
                    LimitUse::Shared(name)
                }
            };
            for route in &routes {
                match draft.routes.get_mut(*route) {
                    Some(route) if route.limits.len() < MAX_LIMITS => route.limits.push(used.clone()),
                    Some(route) => {
                        let place =
                            place.clone().or_else(|| route.place.clone()).unwrap_or_else(|| Place::start_of("-"));
                        report.lost(&place, format!("a limit of the route {}", route.name), "a route has at most 100");
                    }
                    None => {}
                }
            }
        }
        report_together(draft, report);
    }
}

/// Reports each route with several limits.
fn report_together(draft: &Draft, report: &mut Report) {
    let reason = "a request over one of its limits is charged to none of them; there, it is charged to the others";
    for route in draft.routes.iter().filter(|route| route.limits.len() > 1) {
        if let Some(place) = &route.place {
            report.looser(place, format!("limits of the route {}", route.name), reason);
        }
    }
}

/// Returns a name that no other limit of the route has.
fn own_name(limits: &[LimitUse], wish: &str) -> String {
    let is_used = |name: &str| {
        limits.iter().any(|used| match used {
            LimitUse::Shared(other) => other == name,
            LimitUse::Own(limit) => limit.name == name,
        })
    };
    let numbered = (2..).map(|number| valid_name(&format!("{wish:.58}-{number}")));
    std::iter::once(wish.to_owned()).chain(numbered).find(|name| !is_used(name)).unwrap_or_default()
}

/// Returns `true` for conditions on the address of the client.
fn has_clients(when: &Match) -> bool {
    !when.clients.is_empty() || when.not.iter().any(has_clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_envoy() {
        for (pattern, value) in [("a*", "ab"), ("*b", "ab"), ("a*c*e", "abcde"), ("*", ""), ("a*a", "aa")] {
            assert!(matches_wild(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [("a*", "ba"), ("a*a", "a"), ("a*c*e", "abde"), ("x", "xy")] {
            assert!(!matches_wild(pattern, value), "{pattern} {value}");
        }
    }
}
