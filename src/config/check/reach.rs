//! Routes that no request ever reaches, since an earlier one takes all of theirs.

use std::collections::HashMap;

use crate::config::problem::{Location, Problems, quote};
use crate::route::Matcher;

/// A route's matcher, its name and its location.
pub(super) type Named<'f> = (Matcher, &'f str, Location);

/// Reports every route that one before it covers.
///
/// A route with a host or a first segment of its own covers only routes with the same, so each is compared with its
/// kin and with those that have none; comparing all with all takes seconds for a file of 20,000 routes.
pub(super) fn check(routes: &[Named<'_>], problems: &mut Problems) {
    let mut kin: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, (matcher, name, location)) in routes.iter().enumerate() {
        let (host, segment) = matcher.lookup_key();
        let mut keys = vec![(host, segment), (None, segment), (host, None), (None, None)];
        keys.dedup();
        let earlier = keys.iter().filter_map(|key| kin.get(key)).flatten();
        if let Some((_, first, line)) =
            earlier.filter(|index| routes[**index].0.covers(matcher)).min().map(|index| &routes[*index])
        {
            let (name, first) = (quote(name), quote(first));
            let message =
                format!("route {name} is never reached: route {first} on line {} takes all its requests", line.line);
            problems.add(*location, message, format!("move it above {first}, or let {first} match less"));
        }
        kin.entry((host, segment)).or_default().push(index);
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
        fn looking_among_kin_finds_what_comparing_all_with_all_finds(matchers in prop::collection::vec(matcher(), 0..12)) {
            let name = |(index, matcher)| (matcher, "route", Location { line: index + 1, column: 1 });
            let routes: Vec<_> = matchers.into_iter().enumerate().map(name).collect();
            let mut problems = Problems::default();
            check(&routes, &mut problems);
            let found: Vec<_> = problems.iter().map(|problem| (problem.line(), problem.message().to_owned())).collect();
            let mut expected = Vec::new();
            for (index, (matcher, ..)) in routes.iter().enumerate() {
                if let Some(first) = routes[..index].iter().position(|(earlier, ..)| earlier.covers(matcher)) {
                    let line = first + 1;
                    let message = format!("route `route` is never reached: route `route` on line {line} takes all its requests");
                    expected.push((index + 1, message));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
