//! `quota`: clients read their own limits.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::gateway::{TestGateway, get};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn rules(store: &str, target: &str) -> String {
    format!(
        "store: {store}
upstreams: {{ api: {{ targets: ['{target}'] }} }}
routes:
  - name: login
    match: {{ path: /login }}
    upstream: api
  - name: api
    match: {{ path: '/api/**' }}
    upstream: api
    quota: /.well-known/quota
    limits:
      - {{ name: total, mode: OVERALL, rate: 100, interval: 1h }}
      - {{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 5, interval: 1h }}
      - {{ name: hidden, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h, shadow: true }}
      - {{ name: per-key, mode: PER_CLIENT, client: 'header:X-Key', rate: 9, interval: 500ms, on_missing_client: skip }}
  - name: keys
    match: {{ host: keys.example, path: /** }}
    upstream: api
    quota: /.well-known/limits
    limits:
      - {{ name: day, mode: PER_CLIENT, client: 'header:X-Key', rate: 2, interval: day, algorithm: fixed_window, permits: {{ header: X-Cost }} }}
"
    )
}

fn limits(response: &Message) -> Value {
    assert_eq!(response.status(), 200, "{response:?}");
    let body: Value = serde_json::from_str(&response.text()).expect("JSON");
    body["limits"].clone()
}

#[tokio::test]
async fn quota_shows_the_limits_of_the_client_without_a_charge() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules("memory", &format!("http://{}", origin.address)));
    let full = json!([{ "name": "per-ip", "rate": 5, "interval": 3600, "remaining": 5, "reset": 0 }]);
    for _ in 0..3 {
        let response = gateway.get("/.well-known/quota", "").await;
        assert_eq!(limits(&response), full);
        assert_eq!(response.field("content-type").as_deref(), Some("application/json"));
        assert_eq!(response.field("cache-control").as_deref(), Some("no-store"));
        assert_eq!(response.field("ratelimit"), None);
    }
    for _ in 0..2 {
        assert_eq!(gateway.get("/api/a", "X-Key: one\r\n").await.status(), 200);
    }
    let both = limits(&gateway.get("/.well-known/quota/", "X-Key: two\r\n").await);
    let (shown, key) = (&both[0], &both[1]);
    assert_eq!((&shown["name"], &shown["remaining"]), (&"per-ip".into(), &3.into()));
    assert!((1..=3600).contains(&shown["reset"].as_u64().expect("a number")), "{shown}");
    assert_eq!(*key, json!({ "name": "per-key", "rate": 9, "interval": 0.5, "remaining": 9, "reset": 0 }));
    let other = Raw::connect_from("127.0.0.9", gateway.address).await.ask(request("GET", "/.well-known/quota")).await;
    assert_eq!(limits(&other), full);
    assert_eq!(origin.requests().len(), 2);
}

/// The quota's own path is the only path for which it could show such a limit.
#[tokio::test]
async fn quota_omits_limits_of_each_path() {
    let rules = "upstreams: { api: { targets: ['builtin:echo'] } }
routes:
  - name: api
    match: {}
    upstream: api
    quota: /quota
    limits:
      - { name: path, mode: PER_CLIENT, client: path, rate: 5, interval: 1h }
      - { name: both, mode: PER_CLIENT, client: [ip, path], rate: 5, interval: 1h }
      - { name: ip, mode: PER_CLIENT, client: ip, rate: 5, interval: 1h }
";
    let gateway = TestGateway::start(rules);
    assert_eq!(gateway.get("/a", "").await.status(), 200);
    let shown = limits(&gateway.get("/quota", "").await);
    assert_eq!((&shown[0]["name"], &shown[0]["remaining"], &shown[1]), (&json!("ip"), &json!(4), &Value::Null));
}

fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: keys.example\r\n\r\n")
}

#[tokio::test]
async fn quota_needs_the_client_of_its_limits() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules("memory", &format!("http://{}", origin.address)));
    let mut client = gateway.client().await;
    let missing = client.ask(request("GET", "/.well-known/limits")).await;
    assert_eq!(missing.status(), 400, "{missing:?}");
    assert!(missing.text().contains("identifies clients of `day`"), "{}", missing.text());
    let known =
        client.ask("GET /.well-known/limits HTTP/1.1\r\nHost: keys.example\r\nX-Key: a\r\nX-Cost: bad\r\n\r\n").await;
    let shown = limits(&known);
    assert_eq!((&shown[0]["rate"], &shown[0]["interval"]), (&2.into(), &86_400.into()));
    let head = client.ask("HEAD /.well-known/limits HTTP/1.1\r\nHost: keys.example\r\nX-Key: a\r\n\r\n").await;
    assert_eq!((head.status(), head.text()), (200, String::new()));
    for method in ["POST", "DELETE", "OPTIONS"] {
        let response = client.ask(request(method, "/.well-known/limits")).await;
        assert_eq!((response.status(), response.field("allow").as_deref()), (405, Some("GET, HEAD")), "{method}");
    }
    assert_eq!(origin.requests().len(), 0);
    // On another host the path is no quota.
    let response = gateway.get("/.well-known/limits", "").await;
    assert_eq!(response.status(), 404);
}

#[tokio::test]
async fn quota_is_limited_for_each_client() {
    let gateway = TestGateway::start(&rules("memory", "builtin:echo"));
    let started = Instant::now();
    let responses = join_all((0..30).map(|_| gateway.get("/.well-known/quota", ""))).await;
    let most = 10 * (2 + started.elapsed().as_secs());
    let mut granted = 0;
    for response in responses {
        match response.status() {
            200 => granted += 1,
            429 => assert_eq!(response.field("retry-after").as_deref(), Some("1")),
            _ => panic!("{response:?}"),
        }
    }
    assert!((10..=most).contains(&granted), "{granted} of at most {most}");
    let mut other = Raw::connect_from("127.0.0.9", gateway.address).await;
    assert_eq!(get(&mut other, "/.well-known/quota", "").await.status(), 200);
    // The limits of the route are untouched.
    let mut client = gateway.client().await;
    for number in 1..=6 {
        let status = get(&mut client, "/api/a", "").await.status();
        assert_eq!(status, if number <= 5 { 200 } else { 429 });
    }
}

#[tokio::test]
async fn quota_in_redis_is_the_same_on_all_gateways() {
    let Some(redis) = RedisServer::start() else { return };
    let rules = rules(&format!("{{ url: '{}', timeout: 5s }}", redis.url()), "builtin:echo");
    let (one, other) = (TestGateway::start(&rules), TestGateway::start(&rules));
    for _ in 0..3 {
        assert_eq!(one.get("/api/a", "").await.status(), 200);
    }
    assert_eq!(limits(&other.get("/.well-known/quota", "").await)[0]["remaining"], 2);
    drop(redis);
    assert_eq!(other.get("/.well-known/quota", "").await.status(), 503);
}

#[tokio::test]
async fn reload_adds_and_removes_a_quota() {
    let with_quota = rules("memory", "builtin:echo");
    let without = with_quota.replace("    quota: /.well-known/quota\n", "");
    let gateway = TestGateway::start(&without);
    assert_eq!(gateway.get("/.well-known/quota", "").await.status(), 404);
    let report = gateway.reload(&with_quota);
    assert!(report.changes().iter().any(|change| change.contains("quota")), "{:?}", report.changes());
    assert_eq!(gateway.get("/.well-known/quota", "").await.status(), 200);
    gateway.reload(&without);
    assert_eq!(gateway.get("/.well-known/quota", "").await.status(), 404);
}
