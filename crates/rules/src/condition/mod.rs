//! The conditions of a route, and the first condition that a request does not meet.

mod text;

use std::sync::Arc;

use http::Method;

use crate::request::facts::{Facts, Scheme};
use crate::request::identity::IdentityCondition;
use crate::route::{ClientNetworks, HostPattern, Matcher, Met, PathPattern, Route, Routes, ValueCondition};

/// One condition of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'m> {
    /// The path matches one of these patterns.
    Path(&'m [PathPattern]),
    /// The host matches one of these patterns.
    Host(&'m [HostPattern]),
    /// The method is one of these.
    Methods(&'m [Method]),
    /// The client used this scheme.
    Scheme(Scheme),
    /// One of these listeners received the request.
    Listener(&'m [Arc<str>]),
    /// A header field, a query parameter or a cookie has one of these values, which may be secrets.
    Value(&'m ValueCondition),
    /// The client's address is in one of these networks.
    Clients(&'m ClientNetworks),
    /// At least one of these conditions is not met.
    Not(&'m Matcher),
    /// The verified credentials of the request meet this condition.
    Identity(&'m IdentityCondition),
}

/// The result of a search for a route, with the reasons.
#[derive(Clone, Debug)]
pub struct Search<'r> {
    /// The earlier routes, each with the first condition that was not met.
    pub passed_over: Vec<(&'r Route, Condition<'r>)>,
    /// The first route that matches.
    pub found: Option<&'r Route>,
}

// === impl Matcher ===

impl Matcher {
    /// Returns the first condition that these facts certainly do not meet ([`Met::No`]).
    #[inline]
    pub fn unmet(&self, facts: &Facts<'_>) -> Option<Condition<'_>> {
        if !self.matches_path(facts) {
            return Some(Condition::Path(&self.paths));
        }
        if !self.matches_host(facts) {
            return Some(Condition::Host(&self.hosts));
        }
        self.unmet_other(facts)
    }

    /// As [`unmet`](Self::unmet), for a request whose host and path are known to match.
    #[inline]
    pub fn unmet_other(&self, facts: &Facts<'_>) -> Option<Condition<'_>> {
        if !self.matches_method(facts.method) {
            return Some(Condition::Methods(&self.methods));
        }
        if let Some(scheme) = self.scheme.filter(|_| !self.matches_scheme(facts)) {
            return Some(Condition::Scheme(scheme));
        }
        if !self.matches_listener(facts) {
            return Some(Condition::Listener(&self.listeners));
        }
        if let Some(value) = self.values.iter().find(|value| value.met(facts) == Met::No) {
            return Some(Condition::Value(value));
        }
        if let Some(clients) = self.clients.as_ref().filter(|clients| clients.met(facts) == Met::No) {
            return Some(Condition::Clients(clients));
        }
        if let Some(not) = self.not.iter().find(|not| not.met(facts) == Met::Yes) {
            return Some(Condition::Not(not));
        }
        self.unmet_identity(facts).map(Condition::Identity)
    }

    /// Returns `true` if there are conditions other than host and path.
    pub fn has_other(&self) -> bool {
        !self.methods.is_empty()
            || self.scheme.is_some()
            || !self.listeners.is_empty()
            || !self.values.is_empty()
            || self.clients.is_some()
            || !self.not.is_empty()
            || !self.identity.is_empty()
    }

    /// Iterates over all conditions, in the order in which they are checked.
    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        let path = (!self.paths.is_empty()).then_some(Condition::Path(&self.paths));
        let host = (!self.hosts.is_empty()).then_some(Condition::Host(&self.hosts));
        let methods = (!self.methods.is_empty()).then_some(Condition::Methods(&self.methods));
        let scheme = self.scheme.map(Condition::Scheme);
        let listener = (!self.listeners.is_empty()).then_some(Condition::Listener(&self.listeners));
        let values = self.values.iter().map(Condition::Value);
        let clients = self.clients.iter().map(Condition::Clients);
        let not = self.not.iter().map(Condition::Not);
        let identity = self.identity.iter().map(Condition::Identity);
        let arrival = scheme.into_iter().chain(listener);
        let others = values.chain(clients).chain(not).chain(identity);
        path.into_iter().chain(host).chain(methods).chain(arrival).chain(others)
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
    use http::{HeaderMap, HeaderName};
    use proptest::prelude::*;

    use super::*;

    fn matcher() -> impl Strategy<Value = Matcher> {
        let host = prop::option::of(prop::sample::select(vec!["a.example", "*.example", "b"]));
        let path = prop::option::of(prop::sample::select(vec!["/", "/a", "/{x}", "/a/**", "/**", "/a*", "/**/*b"]));
        let methods = prop::sample::subsequence(vec![Method::GET, Method::POST], 0..=2);
        let headers = prop::sample::subsequence(vec!["1", "2"], 0..=2);
        (host, path, methods, headers).prop_map(|(host, path, methods, headers)| Matcher {
            hosts: host.into_iter().map(|host| HostPattern::parse(host).expect(host)).collect(),
            paths: path.into_iter().map(|path| PathPattern::parse(path).expect(path)).collect(),
            methods,
            values: headers
                .into_iter()
                .map(|value| ValueCondition::header(HeaderName::from_static("x"), value))
                .collect(),
            ..Matcher::default()
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
                sent.iter().map(|sent| (HeaderName::from_static("x"), http::HeaderValue::from_static(sent))).collect();
            let peer = std::net::Ipv4Addr::LOCALHOST.into();
            let facts =
                Facts { method: &Method::GET, host: host.into(), path: path.into(), query: None, headers: &headers, peer: Some(peer), peer_is_client: false, peer_is_trusted: false, tls: None, extensions: None, identity: None, time: None, body: None };
            for route in routes.iter() {
                let is_unmet = route.matcher.unmet_other(&facts).is_some();
                prop_assert_eq!(route.matcher.met_other(&facts) == Met::No, is_unmet);
            }
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
