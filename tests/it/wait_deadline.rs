//! Requests that may wait for permits, and whose timeout ends earlier.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_limit::clock::Stopwatch;

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Message;

const GRPC: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nTE: trailers\r\nContent-Length: 0\r\n";

fn gateway(upstream: &str, route: &str, limit: &str) -> TestGateway {
    TestGateway::start(&rules(upstream, route, limit))
}

fn rules(upstream: &str, route: &str, limit: &str) -> String {
    format!(
        "upstreams: {{ api: {{ targets: [builtin:echo], {upstream} }} }}
routes:
  - name: all
    match: {{}}
    upstream: api
    {route}
    limits: [{{ name: l, mode: OVERALL, rate: 1, {limit} }}]"
    )
}

async fn assert_rejected_at_once(gateway: &TestGateway, response: &Message, longest: u64) {
    assert_eq!(response.status(), 429, "{}", response.text());
    let wait: u64 = response.field("retry-after").expect("a wait").parse().expect("seconds");
    assert!((1..=longest).contains(&wait), "{wait}");
    let used = gateway.admin_get("/metrics").await.text();
    assert!(!used.contains("tidegate_permit_wait_seconds_count"), "no request has waited: {used}");
}

#[tokio::test]
async fn request_does_not_wait_beyond_its_timeouts() {
    for (upstream, route) in [("timeouts: { total: 5m }", "timeout: 1h"), ("timeouts: { total: 1h }", "timeout: 5m")] {
        let gateway = gateway(upstream, route, "interval: 1h, max_wait: 1h");
        assert_eq!(gateway.get("/", "").await.status(), 200);
        assert_rejected_at_once(&gateway, &gateway.get("/", "").await, 3_600).await;
    }
}

#[tokio::test]
async fn time_slot_after_the_timeout_is_not_taken() {
    let gateway = gateway("", "timeout: 5m", "interval: 30m, algorithm: leaky_bucket, queue: 5, max_wait: 1h");
    assert_eq!(gateway.get("/", "").await.status(), 200);
    // Each has to wait for the next slot only.
    for _ in 0..2 {
        assert_rejected_at_once(&gateway, &gateway.get("/", "").await, 1_800).await;
    }
}

#[tokio::test]
async fn call_does_not_wait_beyond_its_grpc_timeout() {
    let gateway = gateway("", "", "interval: 1h, max_wait: 1h");
    assert_eq!(gateway.get("/", "").await.status(), 200);
    let call = format!("{GRPC}grpc-timeout: 5M\r\n\r\n");
    let response = gateway.client().await.ask(call.as_bytes()).await;
    assert_eq!((response.status(), response.field("grpc-status")), (200, Some("8".to_owned())), "RESOURCE_EXHAUSTED");
}

/// Regression test: each call took a time slot and gave it back, with two calls to Redis. Only the last slot can be given
/// back, so that calls at the same time delayed all others.
#[tokio::test]
async fn call_takes_no_time_slot_beyond_its_grpc_timeout() {
    const SLOT: Duration = Duration::from_secs(4);
    let Some(redis) = RedisServer::start() else { return };
    let rules = rules("", "", "interval: 4s, algorithm: leaky_bucket, queue: 9, max_wait: 1h");
    let gateway = TestGateway::start(&format!("store: {{ url: '{}', timeout: 1s }}\n{rules}", redis.url()));
    let watch = Stopwatch::start();
    assert_eq!(gateway.get("/", "").await.status(), 200);
    let call = format!("{GRPC}grpc-timeout: 100m\r\n\r\n");
    let before = redis.decision_calls();
    for _ in 0..5 {
        let calls = (0..8).map(|_| async { gateway.client().await.ask(call.as_bytes()).await });
        for response in join_all(calls).await {
            assert_eq!(response.field("grpc-status").as_deref(), Some("8"), "RESOURCE_EXHAUSTED");
        }
    }
    let (calls, since) = (redis.decision_calls() - before, watch.elapsed());
    assert!(calls <= 12, "{calls} calls");
    assert_eq!(gateway.get("/", "").await.status(), 200);
    // On a busy machine, the next time slot may have passed before this request.
    assert!(watch.elapsed() < SLOT.max(since) + SLOT, "the next time slot was taken: {:?}", watch.elapsed());
}
