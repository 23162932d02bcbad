//! Routes that no request can reach, because an earlier route matches all of their requests.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::problem::{Location, Problems, quote, quote_all};
use tidegate_rules::route::{HostPattern, LookupKey, Matcher, PathPattern, lookup_key};

/// The matcher of a route with its name and location.
pub(crate) type NamedMatcher<'f> = (&'f Matcher, &'f str, Location);

/// Reports each route whose requests all match earlier routes.
///
/// A literal host or first segment covers only itself. So each pair of a host and a path is compared only with routes
/// whose host and first segment are equal or not literal: comparing all pairs takes seconds for 20,000 routes.
pub(crate) fn check(routes: &[NamedMatcher<'_>], problems: &mut Problems) {
    let mut by_key: HashMap<LookupKey<'_>, Vec<usize>> = HashMap::new();
    for (index, (matcher, name, location)) in routes.iter().enumerate() {
        let earlier: Option<BTreeSet<usize>> =
            matcher.pairs().map(|(host, path)| first_cover(routes, &by_key, matcher, host, path)).collect();
        if let Some(earlier) = earlier {
            let name = quote(name);
            let first: Vec<_> = earlier
                .iter()
                .map(|index| {
                    let (_, first, first_location) = &routes[*index];
                    format!("route {} {}", quote(first), problems.place(*first_location, *location))
                })
                .collect();
            let verb = if first.len() == 1 { "matches" } else { "match" };
            let message = format!("route {name} is unreachable: {} {verb} all its requests", first.join(" and "));
            let firsts = quote_all(earlier.iter().map(|index| routes[*index].1));
            problems.add(*location, message, format!("move it above {firsts}, or narrow {firsts}"));
        }
        let keys: HashSet<_> = matcher.pairs().map(|(host, path)| lookup_key(host, path)).collect();
        keys.into_iter().for_each(|key| by_key.entry(key).or_default().push(index));
    }
}

/// Returns the first route that matches all requests of a matcher on this host and this path.
fn first_cover(
    routes: &[NamedMatcher<'_>],
    by_key: &HashMap<LookupKey<'_>, Vec<usize>>,
    matcher: &Matcher,
    host: Option<&HostPattern>,
    path: Option<&PathPattern>,
) -> Option<usize> {
    let (own_host, segment) = lookup_key(host, path);
    let mut keys = vec![(own_host, segment), (None, segment), (own_host, None), (None, None)];
    keys.dedup();
    let earlier = keys.iter().filter_map(|key| by_key.get(key)).flatten().copied();
    earlier.filter(|index| routes[*index].0.covers_pair(host, path, matcher)).min()
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
            let name = |(index, matcher)| (matcher, "route", Location::new(0, index + 1, 1));
            let routes: Vec<_> = matchers.iter().enumerate().map(name).collect();
            let mut problems = Problems::default();
            check(&routes, &mut problems);
            let found: Vec<_> = problems.iter().map(|problem| (problem.line(), problem.message().to_owned())).collect();
            let mut expected = Vec::new();
            for (index, (matcher, ..)) in routes.iter().enumerate() {
                if let Some(first) = routes[..index].iter().position(|(earlier, ..)| earlier.covers(matcher)) {
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
