//! `on_limit`: requests over a limit are forwarded, to another upstream or with a mark.

use futures_util::future::join_all;
use serde_json::Value;

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::eventually;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::Origin;

const NORMAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nnormal";
const CHEAP: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ncheap";

/// The upstream for requests within the limits, and the one for all others.
struct Upstreams {
    normal: Origin,
    cheap: Origin,
}

impl Upstreams {
    async fn start() -> Self {
        Self { normal: Origin::with_response(NORMAL).await, cheap: Origin::with_response(CHEAP).await }
    }

    /// A gateway with these keys of its route.
    fn gateway(&self, store: &str, keys: &str) -> TestGateway {
        TestGateway::start(&format!(
            "store: {store}
upstreams: {{ normal: {{ targets: ['http://{}'] }}, cheap: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: normal
{keys}",
            self.normal.address, self.cheap.address
        ))
    }
}

const LIMITS: &str = "    limits:
      - { name: tight, mode: OVERALL, rate: 2, interval: 1d }
      - { name: wide, mode: OVERALL, rate: 100, interval: 1d }
      - { name: none, mode: OVERALL, rate: 1, interval: 1d, shadow: true }
";

/// Returns the stores of rule files. On a busy machine, a call must not end by its timeout: the share of a gateway would decide.
fn stores(redis: Option<&RedisServer>) -> Vec<String> {
    let redis = redis.map(|redis| format!("{{ url: '{}', timeout: 10s }}", redis.url()));
    ["memory".to_owned()].into_iter().chain(redis).collect()
}

async fn ask(gateway: &TestGateway, fields: &str) -> Message {
    gateway.client().await.ask(format!("GET /chat HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await
}

/// Returns the permits of a limit that were taken.
async fn used(gateway: &TestGateway, limit: &str) -> u64 {
    let text = gateway.api_get("limits").await.text();
    let limits: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let found = limits.as_array().expect("a list").iter().find(|one| one["limit"] == limit);
    found.and_then(|one| one["permits"]["used"].as_u64()).unwrap_or_else(|| panic!("{text}"))
}

#[tokio::test]
async fn request_over_a_limit_goes_to_another_upstream() {
    let redis = RedisServer::start();
    for store in stores(redis.as_ref()) {
        let upstreams = Upstreams::start().await;
        let gateway = upstreams.gateway(&store, &format!("{LIMITS}    on_limit: {{ upstream: cheap }}"));
        let mut bodies = Vec::new();
        for _ in 0..4 {
            let response = ask(&gateway, "").await;
            assert_eq!(response.status(), 200, "{store}");
            bodies.push(response.text());
        }
        assert_eq!(bodies, ["normal", "normal", "cheap", "cheap"], "{store}");
        // The limit that refuses is not charged, and all others are.
        assert_eq!([used(&gateway, "tight").await, used(&gateway, "wide").await], [2, 4], "{store}");
    }
}

#[tokio::test]
async fn concurrent_requests_never_exceed_the_limit() {
    let Some(redis) = RedisServer::start() else { return };
    let upstreams = Upstreams::start().await;
    let store = &stores(Some(&redis))[1];
    let keys = "    on_limit: { upstream: cheap }
    limits: [{ name: tight, mode: OVERALL, rate: 20, interval: 1d }]";
    let [first, second] = [(); 2].map(|()| upstreams.gateway(store, keys));
    let asked = join_all((0..60).map(|number| ask(if number % 2 == 0 { &first } else { &second }, ""))).await;
    assert!(asked.iter().all(|response| response.status() == 200));
    assert_eq!((upstreams.normal.requests().len(), upstreams.cheap.requests().len()), (20, 40));
}

#[tokio::test]
async fn mark_has_the_names_of_the_limits() {
    let upstreams = Upstreams::start().await;
    let gateway = upstreams.gateway("memory", &format!("{LIMITS}    on_limit: {{ mark: X-Over-Limit }}"));
    let mut marks = Vec::new();
    for _ in 0..3 {
        ask(&gateway, "X-Over-Limit: forged\r\n").await;
        marks.push(upstreams.normal.last_request().field("x-over-limit"));
    }
    assert_eq!(marks, [None, None, Some("tight".to_owned())]);
    // A client cannot have the mark removed as a field of its connection.
    ask(&gateway, "Connection: x-over-limit\r\n").await;
    assert_eq!(upstreams.normal.last_request().field("x-over-limit").as_deref(), Some("tight"));
}

#[tokio::test]
async fn budget_of_a_request_over_it_stays_as_it_is() {
    let redis = RedisServer::start();
    for store in stores(redis.as_ref()) {
        let upstreams = Upstreams::start().await;
        let keys = "    on_limit: { upstream: cheap }
    limits: [{ name: bytes, mode: OVERALL, rate: 10, interval: 1d, permits: { usage: bytes, reserve: { total: 6 } } }]";
        let gateway = upstreams.gateway(&store, keys);
        assert_eq!(ask(&gateway, "").await.text(), "normal");
        for _ in 0..2 {
            assert_eq!(ask(&gateway, "").await.text(), "cheap", "{store}");
        }
        eventually(async || used(&gateway, "bytes").await == 6).await;
    }
}

/// A proxy cannot learn about another upstream.
#[tokio::test]
async fn original_request_of_a_proxy_is_rejected() {
    let upstreams = Upstreams::start().await;
    let gateway = upstreams.gateway(
        "memory",
        "    on_limit: { upstream: cheap }
    limits: [{ name: tight, mode: OVERALL, rate: 1, interval: 1d }]
  - { name: auth, match: { path: /auth }, authorize: {} }
clients: { trusted_proxies: [127.0.0.1] }",
    );
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let fields =
            "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /chat\r\nX-Forwarded-Host: a\r\nX-Forwarded-Proto: http\r\n";
        let request = format!("GET /auth HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        statuses.push(gateway.client().await.ask(request).await.status());
    }
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test]
async fn explanation_names_the_other_upstream() {
    let upstreams = Upstreams::start().await;
    let gateway = upstreams.gateway("memory", &format!("{LIMITS}    on_limit: {{ upstream: cheap }}"));
    for _ in 0..3 {
        ask(&gateway, "").await;
    }
    let body = r#"{"method":"GET","url":"http://a/chat"}"#;
    let head = "POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let mut admin = Raw::connect(gateway.admin).await;
    let response = admin.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    let explained: Value = serde_json::from_str(&response.text()).expect("JSON");
    let text = explained["text"].as_str().expect("a text");
    assert!(text.contains("otherwise forwarded to upstream `cheap`"), "{text}");
    assert_eq!((&explained["admitted"], &explained["status_if_refused"]), (&true.into(), &Value::Null), "{text}");
}
