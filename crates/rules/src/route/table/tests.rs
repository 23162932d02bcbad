//! Compares the table with trying one route after the other.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use super::*;
use crate::request::facts::Facts;
use crate::route::{Route, Routes, ValueCondition};

const FIELD: HeaderName = HeaderName::from_static("x");

fn routes(matchers: Vec<Matcher>) -> Routes {
    Routes::new(matchers.into_iter().map(|matcher| Route::new("route".into(), matcher)).collect())
}

fn on(host: &str, path: &str) -> Matcher {
    let hosts = HostPattern::parse(host).into_iter().collect();
    let paths = PathPattern::parse(path).into_iter().collect();
    Matcher { hosts, paths, ..Matcher::default() }
}

fn position(routes: &Routes, host: &str, path: &str) -> Option<usize> {
    let (headers, peer) = (HeaderMap::new(), std::net::Ipv4Addr::LOCALHOST.into());
    let (host, path) = (host.into(), path.into());
    let facts = Facts {
        method: &Method::GET,
        host,
        path,
        query: None,
        headers: &headers,
        peer: Some(peer),
        peer_is_client: false,
        peer_is_trusted: false,
        tls: None,
        extensions: None,
        identity: None,
        time: None,
        body: None,
    };
    routes.find(&facts).map(|(position, _)| position)
}

/// Generates patterns from few words, so that they overlap.
fn pattern() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "B", "{x}", "{y}", "a*", "*b"]);
    let end = prop::sample::select(vec!["", "/", "/**", "/**/a", "/**/*b", "/**/{x}/b"]);
    (prop::collection::vec(segment, 0..5), end).prop_map(|(segments, end)| match segments.as_slice() {
        [] if end.is_empty() => "/".to_owned(),
        segments => segments.iter().map(|segment| format!("/{segment}")).collect::<String>() + end,
    })
}

fn matcher() -> impl Strategy<Value = Matcher> {
    let host = prop::sample::select(vec!["", "", "a.b", "a.a.b", "*.b", "*.a.b", "*.a.a.b", "b"]);
    let methods = prop::sample::subsequence(vec![Method::GET, Method::POST], 0..=2);
    let header = prop::option::of(prop::sample::select(vec!["1", "2"]));
    let paths = prop::collection::vec((pattern(), prop::sample::select(Case::ALL.to_vec())), 0..=2);
    (host, paths, methods, header).prop_map(|(host, paths, methods, header)| Matcher {
        methods,
        paths: paths.iter().map(|(path, case)| PathPattern::parse(path).expect(path).with_case(*case)).collect(),
        values: header.into_iter().map(|value| ValueCondition::header(FIELD, value)).collect(),
        ..on(host, "")
    })
}

fn path() -> impl Strategy<Value = String> {
    let segments = prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "ab", "A"]), 0..6);
    (segments, prop::bool::ANY).prop_map(|(segments, slash)| match segments.is_empty() || slash {
        true => format!("/{}/", segments.join("/")).replace("//", "/"),
        false => format!("/{}", segments.join("/")),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn table_finds_the_first_matching_route(
        matchers in prop::collection::vec(matcher(), 0..24),
        host in prop::sample::select(vec!["a.b", "b", "c.b", "a.a.b", "c.a.a.b", ".b", ".a.b", "a..b", "[::1]"]),
        path in path(),
        method in prop::sample::select(vec![Method::GET, Method::PUT]),
        sent in prop::option::of(prop::sample::select(vec!["1", "2"])),
    ) {
        let routes = routes(matchers);
        let headers: HeaderMap = sent.iter().map(|sent| (FIELD, HeaderValue::from_static(sent))).collect();
        let (host, path, peer) = (host.into(), path.into(), std::net::Ipv4Addr::LOCALHOST.into());
        let facts = Facts { method: &method, host, path, query: None, headers: &headers, peer: Some(peer), peer_is_client: false, peer_is_trusted: false, tls: None, extensions: None, identity: None, time: None, body: None };
        let in_turn = routes.iter().position(|route| route.matcher.matches(&facts));
        prop_assert_eq!(routes.find(&facts).map(|(position, _)| position), in_turn);
    }
}

#[test]
fn first_route_wins_over_more_specific_ones() {
    let routes = routes(vec![on("", "/{a}/x"), on("a.b", "/u/x"), on("*.b", "/**"), on("", "/u/**")]);
    for (host, path, first) in [
        ("a.b", "/u/x", Some(0)),
        ("a.b", "/u/y", Some(2)),
        ("b", "/u/y", Some(3)),
        ("b", "/u/x", Some(0)),
        ("c", "/v/x", Some(0)),
        ("c", "/v/y", None),
    ] {
        assert_eq!(position(&routes, host, path), first, "{host}{path}");
    }
}

#[test]
fn many_sibling_segments_are_all_found() {
    let paths: Vec<String> = (0..100).map(|number| format!("/s{number}")).collect();
    for size in [1, 4, 5, 100] {
        let routes = routes(paths[..size].iter().map(|path| on("", path)).collect());
        let found: Vec<_> = paths.iter().map(|path| position(&routes, "a", path)).collect();
        assert!((0..100).all(|number| found[number] == Some(number).filter(|number| *number < size)), "{found:?}");
    }
}

#[test]
fn lookup_visits_each_node_at_most_once() {
    // All patterns of ten segments that are `a` or any: 1,024 patterns that match the same path, in a tree of 2,047
    // nodes.
    let ways = |way: u32| -> String { (0..10).map(|at| if way >> at & 1 == 0 { "/a" } else { "/{x}" }).collect() };
    let matchers: Vec<Matcher> = (0..1 << 10).map(|way| on("", &ways(way))).collect();
    let table = Table::new(matchers.iter());
    let looked_at = std::cell::Cell::new(0);
    let none = |_| {
        looked_at.set(looked_at.get() + 1);
        false
    };
    assert_eq!(table.find("a", &"/a".repeat(10), none), None);
    assert_eq!(looked_at.get(), 1 << 10);
    assert_eq!(table.sensitive.trees.len(), (1 << 11) - 1);
}

#[test]
fn path_deeper_than_all_routes_has_no_match() {
    let routes = routes(vec![on("", "/{a}/{b}"), on("", "/a/**")]);
    assert_eq!(position(&routes, "a", &"/a".repeat(4_000)), Some(1));
    assert_eq!(position(&routes, "a", &"/b".repeat(4_000)), None);
    assert_eq!(position(&routes, &"b.".repeat(120), "/b"), None);
}
