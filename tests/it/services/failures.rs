//! Services that do not decide: requests are rejected, unless the rule file admits them.

use super::*;

/// Returns the status and the reason of a response.
pub(super) fn outcome(response: &Message) -> (u16, String) {
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
    (response.status(), body["reason"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn undecided_request_is_rejected_with_a_reason() {
    let asked = Asked::start("pass: [x-user], timeout: 100ms", "").await;
    for (cookie, reason) in [
        ("silent", "service_timeout"),
        ("broken", "service_error"),
        ("error", "service_error"),
        ("odd", "service_response"),
        ("large", "service_response"),
    ] {
        let response = asked.get(cookie).await;
        assert_eq!(outcome(&response), (503, reason.to_owned()), "{cookie}");
        assert_eq!(response.field("retry-after").as_deref(), Some("1"));
        let text = response.text();
        assert!(!text.contains(&asked.service.address.port().to_string()), "the URL is internal: {text}");
    }
    assert!(asked.upstream.requests().is_empty());
    assert_eq!(asked.count("failed").await, 5);
}

#[tokio::test]
async fn unreachable_service_rejects_without_a_charge() {
    let upstream = start_upstream().await;
    let closed = Origin::closed_port();
    let limit = "limits: [{ name: one, mode: OVERALL, rate: 1, interval: 1h }]";
    let gateway = TestGateway::start(&rules(&upstream, &format!("{{ service: 'http://{closed}/' }}"), limit));
    for _ in 0..3 {
        assert_eq!(outcome(&gateway.get("/", "").await), (503, "service_unreachable".to_owned()));
    }
}

#[tokio::test]
async fn failed_answer_stays_charged() {
    let asked = Asked::start("", "limits: [{ name: two, mode: OVERALL, rate: 2, interval: 1h }]").await;
    assert_eq!(asked.statuses(["error", "none", "ann"]).await, [503, 401, 429]);
}

#[tokio::test]
async fn unavailable_service_admits_with_allow() {
    let asked = Asked::start("pass: [x-user], timeout: 100ms, on_failure: allow", "").await;
    for (cookie, status) in
        [("silent", 200), ("broken", 200), ("error", 200), ("odd", 503), ("large", 503), ("none", 401), ("long", 403)]
    {
        let response = asked.gateway.get("/", &format!("Cookie: {cookie}\r\nX-User: root\r\n")).await;
        assert_eq!(response.status(), status, "{cookie}");
    }
    let forwarded = asked.upstream.requests();
    assert_eq!(forwarded.iter().filter_map(|request| request.field("x-user")).count(), 0, "{forwarded:?}");
    assert_eq!((forwarded.len(), asked.count("failed").await), (3, 5));
}

/// The wait for the service is a part of the time of the request.
#[tokio::test]
async fn timeout_of_the_route_ends_the_question() {
    let asked = Asked::start("timeout: 60s", "timeout: 100ms").await;
    assert_eq!(outcome(&asked.get("silent").await), (503, "service_timeout".to_owned()));
}

/// Regression test: with `allow`, a gRPC client with a short timeout got the response without a permission.
#[tokio::test]
async fn short_timeout_of_a_client_admits_no_request() {
    let asked = Asked::start("timeout: 60s, on_failure: allow", "").await;
    let rules = rules(&asked.upstream, &requirement(&asked.service, "timeout: 60s, on_failure: allow"), "");
    asked.gateway.reload(&rules.replace("upstream: api", "respond: { status: 200 }"));
    let call = "POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\ngrpc-timeout: 1m\r\n\
                Cookie: silent\r\nContent-Length: 0\r\n\r\n";
    let response = asked.gateway.client().await.ask(call).await;
    assert_eq!(response.field("grpc-status").as_deref(), Some("14"), "{response:?}");
}
