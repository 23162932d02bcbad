//! A flood of clients through the layer, with an embedded store that is too small for all of them.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use tidegate::{Config, Metrics, Peer, RateLimitLayer, Store};
use tower::ServiceExt;

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Raw;

const RULES: &str = "
routes:
  - name: login
    match: { path: /login }
    limits:
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }
      - { name: total, mode: OVERALL, rate: 10000, interval: 1h }
  - name: api
    match: { path: /api }
    limits:
      - { name: per-key, mode: PER_CLIENT, client: 'header:X-Api-Key', rate: 5, interval: 1h }
";

/// Returns a service with a store of this many buckets, and its metrics.
fn service(buckets: usize) -> (Router, Arc<Metrics>) {
    let config = Config::parse(RULES).expect("rules");
    let store = Store::memory_builder().max_buckets(buckets).open();
    let metrics = Arc::new(Metrics::new());
    let layer = RateLimitLayer::builder().store(store).metrics(Arc::clone(&metrics));
    let layer = layer.from_config(&config).expect("a layer");
    (Router::new().fallback_service(Router::new().fallback(async || "ok")).layer(layer), metrics)
}

async fn status(service: &Router, path: &str, peer: &str, key: &str) -> u16 {
    let peer: IpAddr = peer.parse().expect("an address");
    let request = Request::get(path).header("host", "a").header("x-api-key", key).extension(Peer(peer));
    let answer = service.clone().oneshot(request.body(Body::empty()).expect("a request")).await;
    answer.expect("an answer").status().as_u16()
}

/// Regression test: a full store did not decide, and `on_store_failure: allow` admitted all logins.
#[tokio::test]
async fn random_keys_disable_no_limit() {
    let (service, metrics) = service(400);
    let attacker = "192.0.2.66";
    assert_eq!(status(&service, "/login", "192.0.2.1", "").await, 200);
    for _ in 0..4 {
        status(&service, "/api", attacker, "known").await;
    }
    let mut passed = 0;
    for key in 0..3_000 {
        passed += usize::from(status(&service, "/api", attacker, &format!("random {key}")).await == 200);
    }
    // A share of 100 and a common half of 200, of which `known` has one, and five permits of the overflow bucket.
    assert_eq!(passed, 299 + 5);
    assert_eq!(status(&service, "/api", attacker, "known").await, 200, "it had one permit left");
    assert_eq!(status(&service, "/api", attacker, "known").await, 429);
    for peer in ["192.0.2.2", "192.0.2.3"] {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(status(&service, "/login", peer, "").await);
        }
        assert_eq!(statuses, [200, 200, 429]);
    }
    assert_eq!(
        (status(&service, "/login", "192.0.2.1", "").await, status(&service, "/login", "192.0.2.1", "").await),
        (200, 429)
    );
    let text = metrics.render();
    let counted = format!("tidegate_store_overflow_total{{route=\"api\",limit=\"per-key\"}} {}", 3_000 - 299);
    assert!(text.lines().any(|line| line == counted), "{counted}\n{text}");
    assert!(!text.contains("tidegate_store_failures_total{"), "{text}");
    assert!(!text.contains("tidegate_store_overflow_total{route=\"login\""), "{text}");
}

/// Otherwise each client would have its own queue, and `queue` would not bound the number of waiting requests.
#[tokio::test(start_paused = true)]
async fn overflowing_clients_share_one_wait_queue() {
    let rules = "
routes:
  - name: api
    match: { path: /** }
    limits:
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 10s, max_wait: 20s, queue: 3 }
";
    let config = Config::parse(rules).expect("rules");
    let store = Store::memory_builder().max_buckets(0).open();
    let layer = RateLimitLayer::builder().store(store).from_config(&config).expect("a layer");
    let service = Router::new().fallback_service(Router::new().fallback(async || "ok")).layer(layer);
    let ask = |number: u8| {
        let service = service.clone();
        async move { status(&service, "/", &format!("192.0.2.{number}"), "").await }
    };
    assert_eq!(ask(0).await, 200);
    let mut waiting: Vec<_> = (1..=3).map(|number| tokio::spawn(ask(number))).collect();
    tokio::task::yield_now().await;
    assert_eq!(ask(4).await, 429, "a fourth request waits");
    waiting.iter_mut().for_each(|one| one.abort());
}

#[tokio::test]
async fn admin_interface_shows_buckets_of_each_limit() {
    let gateway = TestGateway::start(
        "
upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: all
    match: { path: /** }
    upstream: echo
    limits:
      - { name: per-key, mode: PER_CLIENT, client: 'header:X-Api-Key', rate: 5, interval: 1h, candidate: { rate: 1, interval: 1h } }
      - { name: total, mode: OVERALL, rate: 10000, interval: 1h }
",
    );
    for key in 0..3 {
        gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await;
    }
    let mut admin = Raw::connect(gateway.admin).await;
    let shown = admin.ask("GET /api/v1/limits HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("json");
    let buckets = |held, share| serde_json::json!({ "held": held, "share": share, "overflowing": false });
    let expected = [("per-key", 3, 1 << 19), ("per-key.candidate", 3, 1 << 19), ("total", 1, 1)];
    for (entry, (name, held, share)) in shown.as_array().expect("a list").iter().zip(expected) {
        assert_eq!((&entry["route"], &entry["limit"]), (&"all".into(), &name.into()), "{shown}");
        assert_eq!(entry["buckets"], buckets(held, share), "{shown}");
    }
    assert_eq!(shown.as_array().map(Vec::len), Some(3));
}
