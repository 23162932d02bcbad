//! Canaries: another backend for requests with a header field or a cookie, or for a share of the requests.

use super::Conversion;
use super::limits::Limits;
use super::manifest::{Ingress, PathRule};
use super::order::Item;
use crate::draft::value::{Map, Value};
use crate::draft::{Match, Target, Upstream};
use crate::report::Verdict;

/// The value that selects the canary.
const ALWAYS: &str = "always";

/// The value that excludes the canary.
const NEVER: &str = "never";

/// The largest weight of a rule file.
const MAX_WEIGHT: u64 = 1_000;

impl Conversion<'_> {
    /// Adds the routes to the canaries of a path.
    pub(super) fn canary_routes(
        &mut self,
        item: &Item<'_, '_>,
        base: &Match,
        canaries: &[&Ingress<'_>],
        limits: &Limits,
    ) {
        for canary in canaries.iter().filter(|canary| canary.namespace == item.ingress.namespace) {
            let Some(rule) = rule_of(canary, item) else { continue };
            for condition in self.conditions(canary) {
                let mut matches = base.clone();
                matches.headers.extend(condition.headers);
                matches.cookies.extend(condition.cookies);
                let upstream = self.upstream(canary, rule);
                self.push_forward(item, matches, upstream, limits);
            }
            self.never_route(item, base, canary, limits);
        }
    }

    /// Adds the route of requests that must not reach the canary, if it has a share of the others.
    fn never_route(&mut self, item: &Item<'_, '_>, base: &Match, canary: &Ingress<'_>, limits: &Limits) {
        let header = canary.text("canary-by-header").filter(is_name);
        let has_value =
            ["canary-by-header-value", "canary-by-header-pattern"].iter().any(|it| canary.text(it).is_some());
        let Some(header) = header.filter(|_| !has_value && canary.number("canary-weight").is_some()) else { return };
        let mut matches = base.clone();
        matches.headers.extend(Map::of([(header, NEVER.into())]));
        let upstream = self.upstream(item.ingress, &item.rule);
        self.push_forward(item, matches, upstream, limits);
    }

    /// Returns the upstream of a path with the servers of its canary, each with its share of the requests.
    pub(super) fn with_canary(
        &mut self,
        item: &Item<'_, '_>,
        main: Option<String>,
        canaries: &[&Ingress<'_>],
    ) -> Option<String> {
        let own = canaries.iter().filter(|canary| canary.namespace == item.ingress.namespace);
        let found = own.filter_map(|canary| Some((*canary, rule_of(canary, item)?, canary.number("canary-weight")?)));
        let Some((canary, rule, weight)) = found.into_iter().next() else { return main };
        let other = self.upstream(canary, rule);
        let find =
            |name: &Option<String>| self.draft.upstreams.iter().find(|it| Some(&it.name) == name.as_ref()).cloned();
        let total = canary.number("canary-weight-total").unwrap_or(100).clamp(1, MAX_WEIGHT);
        let weights = (u32::try_from(total.saturating_sub(weight)), u32::try_from(weight.min(total)));
        let (Some(first), Some(second), (Ok(rest), Ok(weight))) = (find(&main), find(&other), weights) else {
            return main;
        };
        if rest == 0 {
            self.same(canary, "canary-weight", "all requests reach the canary");
            return other;
        }
        if first.more != second.more {
            self.lost(canary, "canary-weight", "the settings of the two upstreams differ: the canary is left out");
            return main;
        }
        let name = self.draft.upstream_name(&format!("{}-{}", first.name, second.name));
        let mut targets = Vec::new();
        for (upstream, weight) in [(&first, rest), (&second, weight)] {
            targets.extend(upstream.targets.iter().map(|target| Target { weight, ..target.clone() }));
        }
        self.draft.upstreams.push(Upstream { name: name.clone(), targets, ..first });
        self.same(canary, "canary-weight", "`weight` of the targets");
        self.same(canary, "canary-weight-total", "`weight` of the targets");
        Some(name)
    }

    /// Returns the conditions of a canary: a request meets one of them.
    fn conditions(&mut self, canary: &Ingress<'_>) -> Vec<Match> {
        let mut conditions = Vec::new();
        if let Some(header) = canary.text("canary-by-header").filter(is_name) {
            let value = match (canary.text("canary-by-header-value"), canary.text("canary-by-header-pattern")) {
                (Some(value), _) => literal(value),
                (None, Some(pattern)) => Map::of([("regex", pattern.into())]).into(),
                (None, None) => ALWAYS.into(),
            };
            let is_valid = canary.text("canary-by-header-pattern").is_none_or(is_regex);
            if is_valid {
                conditions.push(Match { headers: Map::of([(header, value)]), ..Match::default() });
                self.same(canary, "canary-by-header", "a route with a condition");
                self.same(canary, "canary-by-header-value", "a route with a condition");
                self.same(canary, "canary-by-header-pattern", "a route with a condition");
            }
        }
        if let Some(cookie) = canary.text("canary-by-cookie").filter(is_name) {
            conditions.push(Match { cookies: Map::of([(cookie, ALWAYS.into())]), ..Match::default() });
            self.same(canary, "canary-by-cookie", "a route with a condition");
        }
        if canary.number("canary-weight").is_none() {
            self.same(canary, "canary-weight", "");
        }
        self.same(canary, "canary", "");
        conditions
    }

    /// Notes the canaries of paths that no other Ingress has.
    pub(super) fn unused_canaries(&mut self, canaries: &[&Ingress<'_>]) {
        for canary in canaries {
            self.note(canary, "canary", Verdict::Same, "without effect: no other Ingress has its paths");
        }
    }
}

fn is_name(name: &&str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns the rule of a canary for a path of another Ingress.
fn rule_of<'c>(canary: &'c Ingress<'_>, item: &Item<'_, '_>) -> Option<&'c PathRule<'c>> {
    let rules = canary.rules.iter().filter(|rule| rule.host == item.host);
    rules.flat_map(|rule| &rule.paths).find(|rule| rule.path == item.rule.path)
}

/// Returns a condition for exactly this value.
fn literal(text: &str) -> Value {
    match text {
        "present" | "absent" => Value::List(vec![text.into(), text.into()]),
        _ => text.into(),
    }
}

fn is_regex(text: &str) -> bool {
    text.len() <= 1_000 && regex::RegexBuilder::new(text).unicode(false).size_limit(1 << 18).build().is_ok()
}
