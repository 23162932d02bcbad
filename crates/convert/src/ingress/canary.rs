//! Canaries: another backend for requests with a header field or a cookie.

use super::Conversion;
use super::limits::Limits;
use super::manifest::{Ingress, PathRule};
use super::order::Item;
use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::report::Verdict;

/// The value that selects the canary.
const ALWAYS: &str = "always";

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
        }
    }

    /// Returns the conditions of a canary: a request meets one of them.
    fn conditions(&mut self, canary: &Ingress<'_>) -> Vec<Match> {
        let mut conditions = Vec::new();
        let is_name = |name: &&str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
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
        match canary.number("canary-weight") {
            None => self.same(canary, "canary-weight", ""),
            Some(_) => {
                self.lost(canary, "canary-weight", "routes have no weights: other requests do not reach the canary");
            }
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
