//! Routes that no request can reach, because earlier routes match all of their requests, and routes for maintenance, which may do so.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::problem::{Location, Problems, quote, quote_all};
use tidegate_rules::route::{HostPattern, LookupKey, Matcher, PathPattern, lookup_key};

/// The most routes that a warning names.
const MAX_NAMED: usize = 10;

/// The matcher of a route.
#[derive(Clone, Copy)]
pub(crate) struct NamedMatcher<'f> {
    pub(crate) matcher: &'f Matcher,
    pub(crate) name: &'f str,
    pub(crate) location: Location,
    /// Whether the route answers with a 5xx status itself. Such a route may cover others for the time of a maintenance.
    pub(crate) is_maintenance: bool,
}

/// The routes, and the earlier ones of the current route by their keys.
struct Earlier<'r, 'f> {
    routes: &'r [NamedMatcher<'f>],
    by_key: HashMap<LookupKey<'f>, Vec<usize>>,
}

/// Reports each route whose requests all match earlier routes. If this is so only because of maintenance routes, warns about
/// these instead.
///
/// A literal host or first segment covers only itself. So each pair of a host and a path is compared only with routes
/// whose host and first segment are equal or not literal: comparing all pairs takes seconds for 20,000 routes.
pub(crate) fn check(routes: &[NamedMatcher<'_>], problems: &mut Problems) {
    let mut earlier = Earlier { routes, by_key: HashMap::new() };
    let has_maintenance = routes.iter().any(|route| route.is_maintenance);
    let mut answered: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (index, route) in routes.iter().enumerate() {
        if let Some(covers) = earlier.covers(route.matcher, |earlier| !earlier.is_maintenance) {
            report_unreachable(route, covers.iter().map(|index| &routes[*index]), problems);
        } else if has_maintenance && let Some(covers) = earlier.covers(route.matcher, |_| true) {
            let maintenance = covers.into_iter().filter(|index| routes[*index].is_maintenance);
            maintenance.for_each(|index| answered.entry(index).or_default().push(route.name));
        }
        let keys: HashSet<_> = route.matcher.pairs().map(|(host, path)| lookup_key(host, path)).collect();
        keys.into_iter().for_each(|key| earlier.by_key.entry(key).or_default().push(index));
    }
    for (index, names) in answered {
        warn_of_maintenance(&routes[index], &names, problems);
    }
}

fn report_unreachable<'f>(
    route: &NamedMatcher<'_>,
    covers: impl Iterator<Item = &'f NamedMatcher<'f>> + Clone,
    problems: &mut Problems,
) {
    let first: Vec<_> = covers
        .clone()
        .map(|earlier| format!("route {} {}", quote(earlier.name), problems.place(earlier.location, route.location)))
        .collect();
    let verb = if first.len() == 1 { "matches" } else { "match" };
    let name = quote(route.name);
    let message = format!("route {name} is unreachable: {} {verb} all its requests", first.join(" and "));
    let firsts = quote_all(covers.map(|earlier| earlier.name));
    problems.add(route.location, message, format!("move it above {firsts}, or narrow {firsts}"));
}

fn warn_of_maintenance(route: &NamedMatcher<'_>, answered: &[&str], problems: &mut Problems) {
    let mut names = quote_all(answered.iter().take(MAX_NAMED).copied());
    if let Some(more) = answered.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        names = format!("{names} and {more} more");
    }
    let routes = if answered.len() == 1 { "route" } else { "routes" };
    let message = format!("route {} answers all requests of the {routes} {names}", quote(route.name));
    problems.warn(route.location, &message, "remove it after the maintenance, or narrow it");
}

// === impl Earlier ===

impl Earlier<'_, '_> {
    /// Returns the routes that together match all requests of a matcher: for each host and path the first of the earlier
    /// routes for which `is_used` returns `true`. Returns `None` if a request matches none of them.
    fn covers(&self, matcher: &Matcher, is_used: impl Fn(&NamedMatcher<'_>) -> bool) -> Option<BTreeSet<usize>> {
        matcher.pairs().map(|(host, path)| self.first_cover(matcher, host, path, &is_used)).collect()
    }

    /// Returns the first route that matches all requests of a matcher on this host and this path.
    fn first_cover(
        &self,
        matcher: &Matcher,
        host: Option<&HostPattern>,
        path: Option<&PathPattern>,
        is_used: &impl Fn(&NamedMatcher<'_>) -> bool,
    ) -> Option<usize> {
        let (own_host, segment) = lookup_key(host, path);
        let mut keys = vec![(own_host, segment), (None, segment), (own_host, None), (None, None)];
        keys.dedup();
        let earlier = keys.iter().filter_map(|key| self.by_key.get(key)).flatten().copied();
        let covers = |index: &usize| {
            let route = &self.routes[*index];
            is_used(route) && route.matcher.covers_pair(host, path, matcher)
        };
        earlier.filter(covers).min()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use tidegate_rules::route::Case;

    fn matcher() -> impl Strategy<Value = Matcher> {
        let host = prop::sample::select(vec!["", "a.b", "c.b", "*.b", "*.a.b"]);
        let path = prop::sample::select(vec![
            "", "/", "/**", "/x", "/x/**", "/{n}", "/{n}/y", "/x/y", "/x/{n}", "/y", "/x*", "/**/y", "/x/**/*y", "/X",
        ]);
        let method = prop::sample::select(vec![vec![], vec![Method::GET], vec![Method::GET, Method::PUT]]);
        (host, path, method, prop::sample::select(Case::ALL.to_vec())).prop_map(|(host, path, methods, case)| Matcher {
            hosts: HostPattern::parse(host).into_iter().collect(),
            paths: PathPattern::parse(path).into_iter().map(|path| path.with_case(case)).collect(),
            methods,
            ..Matcher::default()
        })
    }

    proptest! {
        #[test]
        fn lookup_keys_find_the_same_as_all_pairs(matchers in prop::collection::vec(matcher(), 0..12)) {
            let name = |(index, matcher)| {
                let location = Location::new(0, index + 1, 1);
                NamedMatcher { matcher, name: "route", location, is_maintenance: false }
            };
            let routes: Vec<_> = matchers.iter().enumerate().map(name).collect();
            let mut problems = Problems::default();
            check(&routes, &mut problems);
            let found: Vec<_> = problems.iter().map(|problem| (problem.line(), problem.message().to_owned())).collect();
            let mut expected = Vec::new();
            for (index, route) in routes.iter().enumerate() {
                let covers = |earlier: &NamedMatcher<'_>| earlier.matcher.covers(route.matcher);
                if let Some(first) = routes[..index].iter().position(covers) {
                    let line = first + 1;
                    let message =
                        format!("route `route` is unreachable: route `route` on line {line} matches all its requests");
                    expected.push((Some(index + 1), message));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
