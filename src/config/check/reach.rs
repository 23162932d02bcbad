//! Routes that no request can reach, because an earlier route matches all of their requests.

use std::collections::HashMap;

use crate::config::problem::{Location, Problems, quote};
use crate::route::Matcher;

/// The matcher of a route with its name and location.
pub(super) type NamedMatcher<'f> = (Matcher, &'f str, Location);

/// Reports each route that an earlier route covers.
///
/// A route with a literal host or first segment covers only routes with the same one. So each route is compared only
/// with routes that have the same lookup key or none: comparing all pairs takes seconds for 20,000 routes.
pub(super) fn check(routes: &[NamedMatcher<'_>], problems: &mut Problems) {
    let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, (matcher, name, location)) in routes.iter().enumerate() {
        let (host, segment) = matcher.lookup_key();
        let mut keys = vec![(host, segment), (None, segment), (host, None), (None, None)];
        keys.dedup();
        let earlier = keys.iter().filter_map(|key| by_key.get(key)).flatten();
        if let Some((_, first, first_location)) =
            earlier.filter(|index| routes[**index].0.covers(matcher)).min().map(|index| &routes[*index])
        {
            let (name, first) = (quote(name), quote(first));
            let place = problems.place(*first_location, *location);
            let message = format!("route {name} is unreachable: route {first} {place} matches all its requests");
            problems.add(*location, message, format!("move it above {first}, or narrow {first}"));
        }
        by_key.entry((host, segment)).or_default().push(index);
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::route::{HostPattern, PathPattern};

    fn matcher() -> impl Strategy<Value = Matcher> {
        let host = prop::sample::select(vec!["", "a.b", "c.b", "*.b", "*.a.b"]);
        let path = prop::sample::select(vec!["", "/", "/**", "/x", "/x/**", "/{n}", "/{n}/y", "/x/y", "/x/{n}", "/y"]);
        let method = prop::sample::select(vec![vec![], vec![Method::GET], vec![Method::GET, Method::PUT]]);
        (host, path, method).prop_map(|(host, path, methods)| Matcher {
            host: HostPattern::parse(host).ok(),
            path: PathPattern::parse(path).ok(),
            methods,
            headers: Vec::new(),
        })
    }

    proptest! {
        #[test]
        fn lookup_keys_find_the_same_as_all_pairs(matchers in prop::collection::vec(matcher(), 0..12)) {
            let name = |(index, matcher)| (matcher, "route", Location { file: 0, line: index + 1, column: 1 });
            let routes: Vec<_> = matchers.into_iter().enumerate().map(name).collect();
            let mut problems = Problems::default();
            check(&routes, &mut problems);
            let found: Vec<_> = problems.iter().map(|problem| (problem.line(), problem.message().to_owned())).collect();
            let mut expected = Vec::new();
            for (index, (matcher, ..)) in routes.iter().enumerate() {
                if let Some(first) = routes[..index].iter().position(|(earlier, ..)| earlier.covers(matcher)) {
                    let line = first + 1;
                    let message =
                        format!("route `route` is unreachable: route `route` on line {line} matches all its requests");
                    expected.push((index + 1, message));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
