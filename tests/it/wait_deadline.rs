//! Requests that may wait for permits, and whose timeout ends earlier.

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;

const GRPC: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nTE: trailers\r\nContent-Length: 0\r\n";

fn gateway(upstream: &str, route: &str, limit: &str) -> TestGateway {
    TestGateway::start(&format!(
        "upstreams: {{ api: {{ targets: [builtin:echo], {upstream} }} }}
routes:
  - name: all
    match: {{}}
    upstream: api
    {route}
    limits: [{{ name: l, mode: OVERALL, rate: 1, {limit} }}]"
    ))
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
async fn time_slot_after_the_timeout_is_given_back() {
    let gateway = gateway("", "timeout: 5m", "interval: 30m, algorithm: leaky_bucket, queue: 5, max_wait: 1h");
    assert_eq!(gateway.get("/", "").await.status(), 200);
    // Each has to wait for the next slot only, because the one before has given its slot back.
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
