//! An explanation finds the same route, client and limits as the layer, for hostile spellings too.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Response, Version};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use super::super::Active;
use super::request::Request;
use crate::admin::only_object::OnlyObject;
use tidegate_config::Config;
use tidegate_layer::layer::{OverTls, Peer, RateLimitLayer, ReportHandle, Unmatched};
use tidegate_layer::overrides::{Action, Adjustment, Override, Scope, Target};
use tidegate_metrics::Metrics;
use tidegate_replay::explain::ExplainedRequest;
use tidegate_rules::request::sanitize::NextHop;
use tidegate_store::Store;

const RULES: &str = "
clients: { trusted_proxies: [10.0.0.0/8, '2001:db8::/32'] }
routes:
  - name: tier
    match: { path: /api/login, headers: { X-Tier: gold } }
    limits: [{ name: all, mode: OVERALL, rate: 2, interval: 1h }]
  - name: login
    match: { path: /api/login, methods: [GET, POST] }
    max_body: 1KiB
    limits:
      - { name: key, mode: PER_CLIENT, client: 'header:authorization', on_missing_client: ip, rate: 2, interval: 1h }
      - { name: cost, mode: OVERALL, rate: 9, interval: 1h, permits: { header: x-cost, max: 9 } }
  - name: session
    match: { path: '/s/{id}', host: '*.example' }
    limits: [{ name: sid, mode: PER_CLIENT, client: 'cookie:sid', on_missing_client: deny, rate: 2, interval: 1h }]
  - name: query
    match: { path: /q/** }
    limits: [{ name: q, mode: PER_CLIENT, client: ['query:key', ip], on_missing_client: skip, rate: 2, interval: 1h }]
  - { name: post, match: { methods: [POST] } }
";

fn config() -> Arc<Config> {
    Arc::new(Config::parse(RULES).expect("rules"))
}

fn active(config: &Arc<Config>, store: &Store) -> Active {
    Active::new(Arc::clone(config), store.clone(), Vec::new())
}

/// The decision of the layer: the status, the route, the client address, and the hash of the client.
type Outcome = (u16, Option<String>, Option<String>, Option<String>);

async fn by_layer(layer: &RateLimitLayer, request: &ExplainedRequest) -> Outcome {
    let service = service_fn(|_: http::Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    let report = ReportHandle::default();
    let mut sent = http::Request::new(());
    *sent.method_mut() = request.method.clone();
    *sent.uri_mut() = request.url.clone();
    *sent.version_mut() = request.version;
    *sent.headers_mut() = request.headers.clone();
    sent.extensions_mut().insert(Peer(request.peer));
    sent.extensions_mut().insert(OverTls(Arc::new(request.tls.clone())));
    sent.extensions_mut().insert(report.clone());
    let response = layer.layer(service).oneshot(sent).await.expect("a response");
    let report = report.get().expect("a report");
    let key = report.client_key.map(|key| format!("{key:032x}"));
    // Requests that are answered before their route is known have an address, but no explanation.
    let client = report.client.filter(|_| response.status() != 204).map(|client| client.to_string());
    (response.status().as_u16(), report.route.as_ref().map(ToString::to_string), client, key)
}

/// Returns the explanation in the form of the layer's decision.
async fn by_explanation(active: &Active, layer: &RateLimitLayer, request: &ExplainedRequest) -> Outcome {
    let explained = json!(active.explain(request, layer).await);
    let status = explained["status"].as_u64().map_or_else(
        || if explained["admitted"] == true { 200 } else { 429 },
        |status| u16::try_from(status).expect("a status"),
    );
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let is_hash = |client: &&Value| client.as_str().is_some_and(|client| client.len() == 32 && !client.contains('.'));
    let limits = explained["limits"].as_array().expect("limits");
    let key = limits.iter().map(|limit| &limit["client"]).find(is_hash).and_then(text);
    let key = key.filter(|_| explained["status"].is_null());
    (status, text(&explained["route"]["name"]), text(&explained["client"]["address"]), key)
}

fn words(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn path() -> impl Strategy<Value = String> {
    let segments = &[
        "api",
        "login",
        "s",
        "q",
        "x",
        "..",
        ".",
        "",
        "%2e%2e",
        "..;",
        "login;v=1",
        "%6cogin",
        "a%2fb",
        "%5c",
        "%252e",
        "LOGIN",
        "a%00",
        "\u{e9}",
        "%ff",
        "*",
    ];
    let query = words(&["", "?key=1", "?key=%31", "?key=1&key=2", "?k%65y=1", "?key=", "?a b", "?key=%zz", "?\"x\""]);
    let special = words(&["", "", "", "*", "/api/login", "/s/1", "/q/1", "//api/login"]);
    (prop::collection::vec(words(segments), 1..4), special, query).prop_map(|(segments, special, query)| {
        let path = if special.is_empty() { format!("/{}", segments.join("/")) } else { special.to_owned() };
        path + query
    })
}

fn fields() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let field = prop::sample::select(
        &[
            ("host", "a.example"),
            ("host", "A.EXAMPLE.:80"),
            ("host", "evil.example"),
            ("host", "a b"),
            ("authorization", "Bearer tok"),
            ("authorization", "bEaReR   tok"),
            ("authorization", "Bearer tok x"),
            ("x-tier", "gold"),
            ("x-tier", " gold\t"),
            ("x-tier", "silver"),
            ("x_tier", "gold"),
            ("x-cost", "3"),
            ("x-cost", "99"),
            ("x-cost", "-1"),
            ("cookie", "sid=1"),
            ("cookie", "sid =\"1\"; a=b"),
            ("cookie", "sid=1; sid=2"),
            ("x-forwarded-for", "6.6.6.6, 10.1.2.3"),
            ("x-forwarded-for", "::ffff:7.7.7.7"),
            ("x-forwarded-for", "unknown, 10.1.2.3"),
            ("forwarded", "for=6.6.6.6"),
            ("connection", "x-tier, authorization"),
            ("connection", "close"),
            ("max-forwards", "0"),
            ("via", "1.1 tidegate"),
            ("content-length", "4096"),
            ("content-length", "12"),
            ("transfer-encoding", "gzip"),
            ("x-http-method-override", "POST"),
            ("proxy", "http://evil"),
        ][..],
    );
    prop::collection::vec(field, 0..5)
}

fn request() -> impl Strategy<Value = ExplainedRequest> {
    let method = words(&["GET", "GET", "POST", "post", "OPTIONS", "CONNECT", "TRACE", "Sweep", "HEAD"]);
    let authority = words(&["", "", "http://a.example", "https://B.Example:443", "http://user@c.example"]);
    let peer = words(&["192.0.2.1", "10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "::1"]);
    let version = prop::sample::select(vec![Version::HTTP_11, Version::HTTP_11, Version::HTTP_10]);
    let san = prop::option::of(words(&["spiffe://a/b", "a.example"]));
    (method, authority, path(), fields(), peer, version, san).prop_filter_map(
        "not a URL",
        |(method, authority, path, fields, peer, version, san)| {
            let url = tidegate_replay::explain::target(&format!("{authority}{path}")).ok()?;
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                let (name, value) = tidegate_replay::explain::field(name, value).ok()?;
                headers.append(name, value);
            }
            let tls = tidegate_rules::request::facts::TlsPeer::new(None, san.map(str::to_owned));
            let peer: IpAddr = peer.parse().ok()?;
            Some(ExplainedRequest {
                method: method.parse().ok()?,
                url,
                headers,
                version,
                peer,
                tls,
                listener: None,
                body: None,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Each request of a sequence is explained, and then decided by the layer with the same store.
    #[test]
    fn explanation_equals_the_decision_of_the_layer(requests in prop::collection::vec(request(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (config, store) = (config(), Store::memory());
            let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Reject).store(store.clone());
            let layer = layer.metrics(Arc::new(Metrics::of_gateway(&[]))).from_config(&config).expect("a layer");
            let active = active(&config, &store);
            for request in &requests {
                let explained = by_explanation(&active, &layer, request).await;
                let again = by_explanation(&active, &layer, request).await;
                prop_assert_eq!(&explained, &again, "an explanation charged something: {:?}", request);
                prop_assert_eq!(explained, by_layer(&layer, request).await, "{:?}", request);
            }
            Ok(())
        })?;
    }
}

/// The outcomes that the property test compares occur.
#[tokio::test]
async fn explanation_has_each_status_of_the_layer() {
    let (config, store) = (config(), Store::memory());
    let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Reject).store(store.clone());
    let layer = layer.metrics(Arc::new(Metrics::of_gateway(&[]))).from_config(&config).expect("a layer");
    let active = active(&config, &store);
    let key = r#""authorization": "Bearer tok""#;
    for (method, url, headers, status, route) in [
        ("GET", "http://a/x/..//api;v=1/%6cogin", key, 200, Some("login")),
        ("GET", "http://a/api/login", r#""Authorization": "bEaReR  tok""#, 200, Some("login")),
        ("POST", "http://a/api/login", key, 429, Some("login")),
        ("POST", "http://a/api/login", r#""content-length": "4096""#, 413, Some("login")),
        ("GET", "http://a/api/login", r#""x-tier": ["gold", "gold"]"#, 200, Some("tier")),
        ("GET", "http://a/api/login", r#""x-tier": ["gold", "x"]"#, 400, None),
        ("GET", "http://a/api/login", r#""x-tier": "gold", "connection": "x-tier""#, 400, None),
        ("GET", "http://a/api/x/..;/login", "", 400, None),
        ("GET", "http://b.example/s/1", "", 400, Some("session")),
        ("GET", "http://b/s/1", "", 404, None),
        ("CONNECT", "http://a/api/login", "", 501, None),
        ("OPTIONS", "*", r#""host": "a""#, 204, None),
    ] {
        let body = format!(r#"{{"method": "{method}", "url": "{url}", "headers": {{{headers}}}}}"#);
        let request: Request = serde_json::from_str(&body).expect("a body");
        let request = request.parse().expect("a request");
        let explained = by_explanation(&active, &layer, &request).await;
        assert_eq!((explained.0, explained.1.as_deref()), (status, route), "{body}");
        assert_eq!(explained, by_layer(&layer, &request).await, "{body}");
    }
}

/// Each request is explained and then decided by the layer, with one override.
#[tokio::test]
async fn explanation_has_each_effect_of_overrides() {
    let (network, all) = (Target::Network("192.0.2.0/24".parse().expect("a network")), || Scope::All);
    let scope = |text: &str| text.parse::<Scope>().expect("a scope");
    let (login, tok) = ("http://a/api/login", ("authorization", "Bearer tok"));
    for (action, scope, multiply, url, fields, expected) in [
        (Action::Ban, all(), None, login, &[tok][..], [403, 403, 403]),
        (Action::Ban, all(), None, "http://a/x", &[], [404, 404, 404]),
        (Action::Ban, all(), None, login, &[tok, ("content-length", "4096")], [413, 413, 413]),
        (Action::Ban, scope("login/cost"), None, login, &[tok], [403, 403, 403]),
        (Action::Ban, all(), None, "http://b.example/s/1", &[], [403, 403, 403]),
        (Action::Ban, scope("query"), None, "http://b.example/s/1", &[], [400, 400, 400]),
        (Action::Exempt, all(), None, "http://b.example/s/1", &[], [200, 200, 200]),
        (Action::Exempt, scope("login/key"), None, login, &[tok], [200, 200, 200]),
        (Action::Exempt, scope("login/cost"), None, login, &[tok], [200, 200, 429]),
        (Action::Exempt, scope("login/cost"), None, login, &[("x-cost", "x")], [200, 200, 429]),
        (Action::Adjust, scope("login/key"), Some("0.5"), login, &[tok], [200, 429, 429]),
        (Action::Adjust, all(), Some("2"), login, &[tok], [200, 200, 200]),
        (Action::Adjust, all(), Some("2"), login, &[("x-tier", "gold")], [200, 200, 429]), // OVERALL
    ] {
        let (config, store) = (config(), Store::memory());
        let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Reject).store(store.clone());
        let layer = layer.metrics(Arc::new(Metrics::of_gateway(&[]))).from_config(&config).expect("a layer");
        let active = active(&config, &store);
        let case = format!("{action:?} {scope} {url} {fields:?}");
        let multiply = multiply.map(|factor| factor.parse().expect("a factor"));
        let one = Override {
            id: Override::id_of(action, &scope, &network),
            action,
            scope,
            target: network.clone(),
            adjustment: Adjustment { rate: None, multiply },
            disconnect: false,
            until: store.now().plus_millis(3_600_000),
            reason: "a test".to_owned(),
            by: "ann".to_owned(),
        };
        let text = serde_json::to_string(&one).expect("JSON");
        _ = store.put_override(&one.id, &text, one.until, false).await.expect("stored");
        layer.refresh_overrides().await.expect("read");
        let headers: BTreeMap<&str, &str> = fields.iter().copied().collect();
        let method = if url == login { "POST" } else { "GET" };
        let body = json!({ "method": method, "url": url, "peer": "192.0.2.1", "headers": headers });
        let request: Request = serde_json::from_value(body).expect("a body");
        let request = request.parse().expect("a request");
        let mut statuses = Vec::new();
        for _ in expected {
            let explained = by_explanation(&active, &layer, &request).await;
            assert_eq!(explained, by_layer(&layer, &request).await, "{case}");
            statuses.push(explained.0);
        }
        assert_eq!(statuses, expected, "{case}");
    }
}

#[test]
fn body_is_strict() {
    let parse = |body: &str| {
        let OnlyObject(request): OnlyObject<Request> = serde_json::from_str(body).map_err(|error| error.to_string())?;
        request.parse()
    };
    let start = r#"{"method": "GET", "url": "http://a/""#;
    assert!(parse(&format!("{start}}}")).is_ok());
    let lines =
        parse(&format!(r#"{start}, "headers": {{"Via": "1.1 a", "X-Forwarded-For": ["1.1.1.1", "2.2.2.2"]}}}}"#));
    let names: BTreeMap<_, _> =
        lines.expect("a request").headers.iter().map(|(name, value)| (name.to_string(), value.len())).collect();
    assert_eq!(names, BTreeMap::from([("via".to_owned(), 5), ("x-forwarded-for".to_owned(), 7)]));
    for (members, complaint) in [
        (r#""header": {}"#, "unknown field `header`"),
        (r#""tls": {"name": "a"}"#, "unknown field `name`"),
        (r#""headers": {"a": "1", "a": "2"}"#, "`a` occurs twice"),
        (r#""headers": {"a": "1", "A": "2"}"#, "`A` occurs twice"),
        (r#""headers": {"a b": "1"}"#, "`a b` is not a valid header field name"),
        (r#""headers": {"": "1"}"#, "is not a valid header field name"),
        (r#""headers": {"a": "1\r\nb: 2"}"#, "`a` has a value that is not valid"),
        (r#""headers": {"a": 1}"#, "must be a text or a list of texts"),
        (r#""peer": "a.example""#, "invalid IP address"),
        (r#""version": "HTTP/2""#, "unknown variant"),
        (r#""method": "GET""#, "duplicate field `method`"),
    ] {
        let error = parse(&format!("{start}, {members}}}")).expect_err(members);
        assert!(error.contains(complaint), "{members}: {error}");
    }
    for (body, complaint) in [
        (r#"{"method": "G T", "url": "/"}"#, "`method`: a method is a word"),
        (r#"{"method": "GET", "url": "ftp://a/"}"#, "`url`: write http://host/path"),
        (r#"{"method": "GET", "url": "http://a/#b"}"#, "`url`: write http://host/path"),
        (r#"["GET", "http://a/", {}]"#, "expected an object"),
        (r#"{"method": "GET", "url": "/", "tls": [null, null]}"#, "expected an object"),
        (r#"{"method": "GET"}"#, "missing field `url`"),
        ("{", "EOF"),
    ] {
        let error = parse(body).expect_err(body);
        assert!(error.contains(complaint), "{body}: {error}");
    }
}
