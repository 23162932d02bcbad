//! The conditions of a route, and the first condition that a request does not meet.

use http::{HeaderName, HeaderValue, Method};

use crate::facts::Facts;
use crate::route::{HostPattern, Matcher, PathPattern, Route, Routes};

/// One condition of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'m> {
    /// The path matches this pattern.
    Path(&'m PathPattern),
    /// The host matches this pattern.
    Host(&'m HostPattern),
    /// The method is one of these.
    Methods(&'m [Method]),
    /// The header field has this value, which may be a secret.
    Header(&'m HeaderName, &'m HeaderValue),
}

/// The result of a search for a route, with the reasons.
#[derive(Clone, Debug)]
pub struct Search<'r> {
    /// The routes that did not match, each with the first condition that was not met.
    pub passed_over: Vec<(&'r Route, Condition<'r>)>,
    /// The first route that matches.
    pub found: Option<&'r Route>,
}

// === impl Matcher ===

impl Matcher {
    /// Returns the first condition that a request with these facts does not meet.
    #[inline]
    pub fn unmet(&self, facts: &Facts<'_>) -> Option<Condition<'_>> {
        if let Some(path) = self.path.as_ref().filter(|path| !path.matches(facts.path.matched())) {
            return Some(Condition::Path(path));
        }
        if let Some(host) = self.host.as_ref().filter(|host| !host.matches(&facts.host)) {
            return Some(Condition::Host(host));
        }
        self.unmet_method_or_header(facts)
    }

    /// As [`unmet`](Self::unmet), for a request whose host and path are known to match.
    #[inline]
    pub(crate) fn unmet_method_or_header(&self, facts: &Facts<'_>) -> Option<Condition<'_>> {
        if !self.methods.is_empty() && !self.methods.contains(facts.method) {
            return Some(Condition::Methods(&self.methods));
        }
        let sent = |name, value| facts.headers.get_all(name).iter().any(|sent| sent.as_bytes().trim_ascii() == value);
        let (name, value) = self.headers.iter().find(|(name, value)| !sent(name, value))?;
        Some(Condition::Header(name, value))
    }

    /// Returns `true` if there are conditions other than host and path.
    pub(crate) fn has_method_or_header(&self) -> bool {
        !self.methods.is_empty() || !self.headers.is_empty()
    }

    /// Iterates over all conditions, in the order in which they are checked.
    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        let path = self.path.iter().map(Condition::Path);
        let host = self.host.iter().map(Condition::Host);
        let methods = (!self.methods.is_empty()).then_some(Condition::Methods(&self.methods));
        let headers = self.headers.iter().map(|(name, value)| Condition::Header(name, value));
        path.chain(host).chain(methods).chain(headers)
    }
}

// === impl Routes ===

impl Routes {
    /// Finds the same route as [`find`](Routes::find), and records why earlier routes do not match.
    pub fn search(&self, facts: &Facts<'_>) -> Search<'_> {
        let mut passed_over = Vec::new();
        for route in self.iter() {
            match route.matcher.unmet(facts) {
                Some(condition) => passed_over.push((route, condition)),
                None => return Search { passed_over, found: Some(route) },
            }
        }
        Search { passed_over, found: None }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::*;

    use super::*;

    fn matcher() -> impl Strategy<Value = Matcher> {
        let host = prop::option::of(prop::sample::select(vec!["a.example", "*.example", "b"]));
        let path = prop::option::of(prop::sample::select(vec!["/", "/a", "/{x}", "/a/**", "/**"]));
        let methods = prop::sample::subsequence(vec![Method::GET, Method::POST], 0..=2);
        let headers = prop::sample::subsequence(vec!["1", "2"], 0..=2);
        (host, path, methods, headers).prop_map(|(host, path, methods, headers)| Matcher {
            host: host.map(|host| HostPattern::parse(host).expect(host)),
            path: path.map(|path| PathPattern::parse(path).expect(path)),
            methods,
            headers: headers
                .into_iter()
                .map(|value| (HeaderName::from_static("x"), HeaderValue::from_static(value)))
                .collect(),
        })
    }

    proptest! {
        #[test]
        fn search_and_find_return_the_same_route(
            matchers in prop::collection::vec(matcher(), 0..6),
            host in prop::sample::select(vec!["a.example", "b", "c"]),
            path in prop::sample::select(vec!["/", "/a", "/a/b"]),
            sent in prop::option::of(prop::sample::select(vec!["1", "2"])),
        ) {
            let route = |(index, matcher): (usize, Matcher)| {
                Route::new(index.to_string().into(), matcher)
            };
            let routes = Routes::new(matchers.into_iter().enumerate().map(route).collect());
            let headers: HeaderMap =
                sent.iter().map(|sent| (HeaderName::from_static("x"), HeaderValue::from_static(sent))).collect();
            let peer = std::net::Ipv4Addr::LOCALHOST.into();
            let facts =
                Facts { method: &Method::GET, host: host.into(), path: path.into(), query: None, headers: &headers, peer: Some(peer), peer_is_client: false, peer_is_trusted: false, tls: None, key: None, identity: None };
            let search = routes.search(&facts);
            let found = routes.find(&facts);
            prop_assert_eq!(search.found.map(|route| &route.name), found.map(|(_, route)| &route.name));
            let tried = found.map_or(routes.iter().len(), |(position, _)| position);
            prop_assert_eq!(search.passed_over.len(), tried);
            for (route, condition) in search.passed_over {
                prop_assert!(route.matcher.conditions().any(|other| other == condition));
            }
        }
    }
}
