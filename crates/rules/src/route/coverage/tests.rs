//! Compares the coverage of matchers with the requests that they match.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, header};
use proptest::prelude::*;

use super::*;
use crate::client::AddressRules;
use crate::request::facts::{Facts, ListenerName, Scheme, TlsPeer};
use crate::route::{ClientNetworks, Met, ValueParts, ValuePattern, ValueRegex, ValueSource, ValueTest};

const FIELD: HeaderName = HeaderName::from_static("x");

fn value() -> impl Strategy<Value = ValueCondition> {
    let source = prop::sample::select(vec![
        ValueSource::Header(FIELD),
        ValueSource::Header(header::ACCEPT),
        ValueSource::Query("q".into()),
        ValueSource::Cookie("c".into()),
    ]);
    let values = prop::sample::subsequence(patterns(), 1..=2);
    let one_of = values.prop_map(ValueTest::OneOf);
    let test = prop_oneof![Just(ValueTest::Present), Just(ValueTest::Absent), one_of];
    (source, test).prop_map(|(source, test)| ValueCondition { source, test })
}

fn patterns() -> Vec<ValuePattern> {
    let parts = |parts| ValuePattern::Parts(Box::new(parts));
    let text = |text: &str| text.as_bytes().into();
    let exact = ["1", "2", "1,2", "a"].map(|value| ValuePattern::whole(value.as_bytes(), Case::Sensitive));
    let any_case = ["1", "A"].map(|value| ValuePattern::whole(value.as_bytes(), Case::Insensitive));
    let regex = |regex, case| ValueParts { regex: ValueRegex::new(regex, case).ok(), case, ..ValueParts::default() };
    let mut patterns: Vec<_> = exact.into_iter().chain(any_case).collect();
    for case in [Case::Sensitive, Case::Insensitive] {
        patterns.extend([
            parts(ValueParts { prefix: text("1"), case, ..ValueParts::default() }),
            parts(ValueParts { prefix: text("1,"), case, ..ValueParts::default() }),
            parts(ValueParts { suffix: text("2"), case, ..ValueParts::default() }),
            parts(ValueParts { contains: text("A"), case, ..ValueParts::default() }),
            parts(ValueParts { prefix: text("1"), suffix: text("2"), case, ..ValueParts::default() }),
            parts(regex("^[^2A]+$", case)),
            parts(ValueParts { prefix: text("1"), ..regex("^[^2A]+$", case) }),
        ]);
    }
    patterns
}

fn networks() -> impl Strategy<Value = ClientNetworks> {
    let networks = prop::sample::subsequence(vec!["10.0.0.0/8", "10.1.0.0/16", "192.0.2.1/32", "::/0"], 1..=2);
    networks.prop_map(|networks| {
        let networks = networks.iter().map(|network| network.parse().expect("a network")).collect();
        let addresses =
            AddressRules { trusted_proxies: vec!["10.0.0.9/32".parse().expect("a network")], ipv6_prefix: 64 };
        ClientNetworks::new(networks, Arc::new(addresses))
    })
}

fn positive() -> impl Strategy<Value = Matcher> {
    let hosts = prop::sample::subsequence(vec!["a.b", "c.b", "*.b"], 0..=2);
    let paths = prop::sample::subsequence(
        vec!["/", "/x", "/X", "/{n}", "/x/**", "/{n}/y", "/x*", "/**/y", "/x/**/*y", "/**/{n}"],
        0..=2,
    );
    let methods = prop::sample::subsequence(vec![Method::GET, Method::PUT], 0..=2);
    let values = prop::collection::vec(value(), 0..=2);
    let conditions = (hosts, paths, methods, values, prop::option::of(networks()));
    let scheme = prop::option::of(prop::sample::select(Scheme::ALL.to_vec()));
    let listeners = prop::sample::subsequence(vec!["public", "internal"], 0..=2);
    (conditions, prop::sample::select(Case::ALL.to_vec()), scheme, listeners).prop_map(
        |((hosts, paths, methods, values, clients), case, scheme, listeners)| Matcher {
            hosts: hosts.iter().map(|host| HostPattern::parse(host).expect(host)).collect(),
            paths: paths.iter().map(|path| PathPattern::parse(path).expect(path).with_case(case)).collect(),
            methods,
            case,
            values,
            clients,
            identity: Vec::new(),
            scheme,
            listeners: listeners.into_iter().map(Into::into).collect(),
            not: Vec::new(),
        },
    )
}

fn matcher() -> impl Strategy<Value = Matcher> {
    (positive(), prop::collection::vec(positive(), 0..=2)).prop_map(|(matcher, not)| Matcher { not, ..matcher })
}

/// A request: host, path, method, query, lines of the fields, and its arrival.
type Request = (&'static str, &'static str, Method, Option<&'static str>, Vec<(HeaderName, &'static str)>, Arrival);

/// The peer of a request, whether it used TLS, and the name of the listener.
type Arrival = (Option<IpAddr>, bool, Option<&'static str>);

fn request() -> impl Strategy<Value = Request> {
    let query = prop::sample::select(vec![
        "q=1", "q=2", "q=1&q=2", "q", "Q=1", "q=1,2", "x;q=1", "%", "q=a", "q=A12", "q=x&q=2",
    ]);
    let field =
        prop::sample::select(vec![FIELD, header::ACCEPT, header::COOKIE, HeaderName::from_static("x-forwarded-for")]);
    let sent =
        prop::sample::select(vec!["1", "2", "1,2", "", "c=1", "c=1; c=2", "c=%31", "10.1.0.1", "a", "1A2", "c=A"]);
    let peer = prop::sample::select(vec!["10.0.0.9", "10.1.2.3", "192.0.2.1", "::1"]);
    (
        prop::sample::select(vec!["a.b", "c.b", "d.b", "b"]),
        prop::sample::select(vec!["/", "/x", "/y", "/x/y", "/y/y", "/x/y/z", "/X", "/xy", "/x/z/Y"]),
        prop::sample::select(vec![Method::GET, Method::PUT, Method::POST]),
        prop::option::of(query),
        prop::collection::vec((field, sent), 0..=3),
        (
            prop::option::of(peer.prop_map(|peer| peer.parse().expect("an address"))),
            any::<bool>(),
            prop::option::of(prop::sample::select(vec!["public", "internal"])),
        ),
    )
}

fn with_facts<T>((host, path, method, query, fields, arrival): &Request, read: impl FnOnce(&Facts<'_>) -> T) -> T {
    let (peer, is_tls, listener) = arrival;
    let (tls, mut extensions) = (TlsPeer::default(), Extensions::new());
    if let Some(name) = listener {
        extensions.insert(ListenerName((*name).into()));
    }
    let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
    let headers: HeaderMap = fields.collect();
    read(&Facts {
        method,
        host: (*host).into(),
        path: (*path).into(),
        query: *query,
        headers: &headers,
        peer: *peer,
        peer_is_client: false,
        peer_is_trusted: false,
        tls: is_tls.then_some(&tls),
        extensions: Some(&extensions),
        identity: None,
        time: None,
        body: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn covered_matcher_matches_nothing_else(
        wide in matcher(),
        narrow in matcher(),
        shares in any::<[bool; 5]>(),
        requests in prop::collection::vec(request(), 20),
    ) {
        // Random matchers hardly cover each other, so the narrow one takes over some conditions.
        let narrow = Matcher {
            hosts: if shares[0] { wide.hosts.clone() } else { narrow.hosts },
            paths: if shares[1] { wide.paths.clone() } else { narrow.paths },
            values: if shares[2] { [wide.values.clone(), narrow.values].concat() } else { narrow.values },
            clients: if shares[3] { wide.clients.clone() } else { narrow.clients },
            identity: Vec::new(),
            not: if shares[4] { [wide.not.clone(), narrow.not].concat() } else { narrow.not },
            case: narrow.case,
            methods: narrow.methods,
            scheme: narrow.scheme,
            listeners: narrow.listeners,
        };
        let covers = wide.covers(&narrow);
        let is_empty = narrow.has_contradiction() || narrow.excludes_all();
        for request in &requests {
            with_facts(request, |facts| {
                prop_assert!(!(covers && narrow.matches(facts)) || wide.matches(facts), "{request:?}");
                prop_assert!(!is_empty || narrow.met(facts) != Met::Yes, "{request:?}");
                prop_assert_eq!(narrow.matches(facts), narrow.met(facts) != Met::No);
                Ok(())
            })?;
        }
    }
}

fn parsed(hosts: &[&str], paths: &[&str]) -> Matcher {
    Matcher {
        hosts: hosts.iter().map(|host| HostPattern::parse(host).expect(host)).collect(),
        paths: paths.iter().map(|path| PathPattern::parse(path).expect(path)).collect(),
        ..Matcher::default()
    }
}

#[test]
fn matcher_covers_narrower_matchers() {
    let on =
        |host: &[&str], path: &[&str], methods: &[Method]| Matcher { methods: methods.to_vec(), ..parsed(host, path) };
    let all = Matcher::default();
    assert!(all.covers(&on(&["a.b"], &["/x"], &[Method::GET])) && !on(&[], &["/x"], &[]).covers(&all));
    assert!(on(&["*.b"], &["/x/**"], &[]).covers(&on(&["a.b"], &["/x/{id}"], &[])));
    assert!(on(&[], &["/{a}"], &[]).covers(&on(&[], &["/x"], &[])));
    assert!(!on(&[], &["/x"], &[]).covers(&on(&[], &["/{a}"], &[])));
    assert!(!on(&[], &["/x"], &[]).covers(&on(&[], &["/x/**"], &[])));
    assert!(!on(&[], &[], &[Method::GET]).covers(&all));
    assert!(!on(&[], &[], &[Method::GET]).covers(&on(&[], &[], &[Method::GET, Method::POST])));
    assert!(on(&["a.b", "c.b"], &["/x", "/y/**"], &[]).covers(&on(&["c.b", "a.b"], &["/y/z", "/x"], &[])));
    assert!(!on(&["a.b"], &[], &[]).covers(&on(&["a.b", "c.b"], &[], &[])));
}

#[test]
fn exclusions_and_networks_narrow_a_matcher() {
    let excluding = |not: Matcher| Matcher { not: vec![not], ..parsed(&[], &["/a/**"]) };
    let inner = excluding(parsed(&[], &["/a/inner/**"]));
    assert!(inner.covers(&parsed(&[], &["/a/outer"])) && !inner.covers(&parsed(&[], &["/a/{any}"])));
    assert!(inner.covers(&excluding(parsed(&[], &["/a/**"]))) && !excluding(parsed(&[], &[])).covers(&inner));
    assert!(excluding(parsed(&[], &["/{any}/**"])).excludes_all() && !inner.excludes_all());

    let clients = |network: &str| Matcher {
        clients: Some(ClientNetworks::new(vec![network.parse().expect("a network")], Arc::default())),
        ..Matcher::default()
    };
    assert!(
        clients("10.0.0.0/8").covers(&clients("10.1.0.0/16")) && !clients("10.1.0.0/16").covers(&clients("10.0.0.0/8"))
    );
    assert!(Matcher { not: vec![clients("10.0.0.0/8")], ..Matcher::default() }.covers(&clients("192.0.2.0/24")));
}
