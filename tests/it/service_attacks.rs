//! Hostile callers of the rate limit service: they get errors, and calls on other connections get answers.

use crate::support::service::{OK, RateLimitRequest, SHOULD_RATE_LIMIT, TestService, call, descriptor};
use crate::support::wire::frames::{CONTINUATION, Frame, Frames, HEADERS, fields, request_fields};
use crate::support::wire::raw::Raw;

const LIMITS: [&str; 1] = ["name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 99, interval: 1m"];

/// Asserts that a call on a new connection gets an answer.
async fn assert_serves(service: &TestService) {
    let response = service.client().await.should_rate_limit(&call([descriptor("user=honest")])).await;
    assert_eq!(response.expect("an answer").overall_code, OK);
}

#[tokio::test]
async fn oversized_calls_get_errors() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let code = async |request: &RateLimitRequest| client.should_rate_limit(request).await.expect_err("an error").0;
    let many = call(vec![descriptor("user=x"); 10_000]);
    assert_eq!(code(&many).await, 3);
    let deep = descriptor(&["user=x"; 33].join(","));
    assert_eq!(code(&call([deep])).await, 3);
    let long = "x".repeat(64 << 10);
    assert_eq!(code(&call([descriptor(&format!("user={long}"))])).await, 3);
    assert_eq!(code(&RateLimitRequest { domain: long, ..call([descriptor("user=x")]) }).await, 3);
    // The longest value that Envoy passes on by default has a decision.
    let longest = format!("user={}", "x".repeat(60 << 10));
    assert_eq!(client.should_rate_limit(&call([descriptor(&longest)])).await.expect("an answer").overall_code, OK);
    let huge = client.send(SHOULD_RATE_LIMIT, vec![0; 2 << 20]).await.expect_err("an error");
    assert_eq!(huge.0, 8, "{huge:?}");
    assert_serves(&service).await;
}

#[tokio::test]
async fn oversized_json_gets_an_error() {
    let service = TestService::start("memory", &LIMITS);
    let lists = format!("{{\"domain\":\"edge\",\"descriptors\":[{}{{}}]}}", "{},".repeat(10_000));
    let nested = "[".repeat(100_000);
    for (body, status) in [(lists, 400), (nested, 400), (" ".repeat(2 << 20), 413)] {
        let length = body.len();
        let mut client = Raw::connect(service.http).await;
        client.send(format!("POST /json HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n\r\n")).await;
        // The service may answer before it has read everything.
        _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, body.as_bytes()).await;
        assert_eq!(client.response(false).await.status(), status);
    }
    assert_serves(&service).await;
}

#[tokio::test]
async fn endless_headers_close_only_their_connection() {
    let service = TestService::start("memory", &LIMITS);
    let mut attacker = Frames::connect(service.grpc, &[]).await;
    attacker.frame(HEADERS, 0, 1, &fields(request_fields("POST", SHOULD_RATE_LIMIT))).await;
    let block = fields([("x-filler", "x".repeat(8_000).as_str())]);
    let mut frames = 0;
    while attacker.try_send(Frame::bytes(CONTINUATION, 0, 1, &block)).await {
        frames += 1;
        assert!(frames < 10_000, "the connection is still open");
    }
    assert_serves(&service).await;
    // Incomplete calls keep their own connection busy only.
    let mut slow = Frames::connect(service.grpc, &[]).await;
    for stream in (1..200).step_by(2) {
        slow.open(stream, "POST", SHOULD_RATE_LIMIT, &[("content-type", "application/grpc")], false).await;
    }
    assert_serves(&service).await;
}
