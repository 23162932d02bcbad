//! Requests that are sent again after an attempt failed, and requests that must not be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::Frames;
use crate::support::wire::raw::Message;
use crate::support::wire::until;
use crate::support::wire::upstream::{Origin, OriginConnection};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

fn rules(targets: &[String], upstream: &str, route: &str) -> String {
    format!(
        "upstreams: {{ api: {{ targets: ['{}'], {upstream} }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api, {route} }}]",
        targets.join("', '")
    )
}

/// Starts a gateway with one target.
fn gateway(origin: &Origin, upstream: &str) -> TestGateway {
    TestGateway::start(&rules(&[format!("http://{}", origin.address)], upstream, ""))
}

/// Starts an origin that reads a request on its first connection, sends `start` and then closes. Later connections
/// answer.
async fn fails_first(start: &'static str) -> Origin {
    Origin::start(move |mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {
            if conn.index == 0 {
                conn.raw.send(start).await;
                return;
            }
            conn.raw.send(OK).await;
        }
    })
    .await
}

fn request(method: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    [format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}{length}\r\n").as_bytes(), body].concat()
}

async fn ask(gateway: &TestGateway, request: &[u8]) -> Message {
    gateway.client().await.ask(request).await
}

async fn retries(gateway: &TestGateway, cause: &str) -> u64 {
    gateway.counter(&format!("tidegate_upstream_retries_total{{upstream=\"api\",cause=\"{cause}\"}}")).await
}

#[tokio::test]
async fn idempotent_request_is_sent_again_after_a_reset() {
    for (method, start) in [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "HTTP/1.1 200 OK\r\nX: ")] {
        let origin = fails_first(start).await;
        let gateway = gateway(&origin, "");
        let response = ask(&gateway, &request(method, "X-Own: yes\r\n", b"")).await;
        assert_eq!((response.status(), origin.connections()), (200, 2), "{method} {start}");
        let requests = origin.requests();
        assert_eq!((&requests[0].start, &requests[0].fields), (&requests[1].start, &requests[1].fields));
        assert_eq!(retries(&gateway, "reset").await, 1);
    }
}

#[tokio::test]
async fn requests_that_are_not_sent_again_get_the_reason() {
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let cases = [
        ("POST", "", "", "retry: { attempts: 1 }", "the method is not idempotent"),
        ("GET", "", "", "retry: off", "`retry` does not name this failure"),
        ("GET", "", "", "retry: { on: [connect, timeout] }", "`retry` does not name this failure"),
        ("GET", websocket, "", "", "it offers an upgrade"),
        ("GET", "", "HTTP/1.1 103 Early Hints\r\n\r\n", "", "a response had begun"),
        ("GET", "", "HTTP/1.1 2 OK\r\n\r\n", "", "a response had begun"),
        ("POST", "", "HTTP/1.1 2", "", "the method is not idempotent"),
    ];
    for (method, fields, start, upstream, reason) in cases {
        let origin = fails_first(start).await;
        let gateway = gateway(&origin, upstream);
        let mut client = gateway.client().await;
        client.send(request(method, fields, b"")).await;
        let mut response = client.response(false).await;
        if response.status() == 103 {
            response = client.response(false).await;
        }
        assert_eq!((response.status(), origin.connections()), (502, 1), "{method} {start} {upstream}");
        assert!(response.text().contains(&format!("not sent again: {reason}")), "{}", response.text());
        assert_eq!(retries(&gateway, "reset").await, 0);
    }
}

#[tokio::test]
async fn post_is_sent_to_another_target_if_no_connection_opens() {
    let origin = Origin::with_response(OK).await;
    let targets = [format!("http://{}", Origin::closed_port()), format!("http://{}", origin.address)];
    let gateway = TestGateway::start(&rules(&targets, "", ""));
    for _ in 0..20 {
        assert_eq!(ask(&gateway, &request("POST", "", b"body")).await.status(), 200);
    }
    assert_eq!(origin.requests().len(), 20);
    assert!(retries(&gateway, "connect").await > 0);
}

#[tokio::test]
async fn request_without_a_response_in_time_is_sent_again() {
    for start in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            while conn.request().await.is_some() {
                if conn.index == 0 {
                    conn.raw.send(start).await;
                    _ = conn.raw.closed().await;
                    return;
                }
                conn.raw.send(OK).await;
            }
        })
        .await;
        let gateway = gateway(&origin, "timeouts: { response: 3s }");
        assert_eq!((ask(&gateway, &request("GET", "", b"")).await.status(), origin.connections()), (200, 2));
        assert_eq!(retries(&gateway, "timeout").await, 1);
    }
}

#[tokio::test]
async fn body_is_sent_again_up_to_its_bound() {
    let body: Vec<u8> = (0..64 * 1024 + 1_u32).map(|number| number.to_le_bytes()[0]).collect();
    for (length, status) in [(64 * 1024, 200), (64 * 1024 + 1, 502)] {
        let origin = fails_first("").await;
        let gateway = gateway(&origin, "");
        let response = ask(&gateway, &request("PUT", "", &body[..length])).await;
        assert_eq!(response.status(), status);
        let requests = origin.requests();
        assert!(requests.iter().all(|request| request.body == body[..length]));
        match status {
            200 => assert_eq!(requests.len(), 2),
            _ => assert!(response.text().contains("the body is too long to be kept"), "{}", response.text()),
        }
    }
}

#[tokio::test]
async fn retries_of_an_outage_are_bounded() {
    const REQUESTS: usize = 300;
    let origin = Origin::start(|mut conn: OriginConnection| async move { _ = conn.request().await }).await;
    let gateway = Arc::new(gateway(&origin, "timeouts: { connect: 10s }"));
    let mut clients = JoinSet::new();
    for _ in 0..REQUESTS {
        let gateway = Arc::clone(&gateway);
        clients.spawn(async move { ask(&gateway, &request("GET", "", b"")).await });
    }
    let responses = clients.join_all().await;
    assert!(responses.iter().all(|response| response.status() == 502));
    // Ten in each second of the last ten.
    assert_eq!(origin.connections(), REQUESTS + 100);
    let exhausted = gateway.counter("tidegate_upstream_retry_budget_exhausted_total{upstream=\"api\"}").await;
    assert_eq!((retries(&gateway, "reset").await, exhausted), (100, 200));
    let refused = responses.iter().filter(|response| response.text().contains("the budget for retries is exhausted"));
    assert_eq!(refused.count(), 200);
}

#[tokio::test]
async fn retried_request_is_charged_once() {
    let origin = fails_first("").await;
    let target = format!("http://{}", origin.address);
    let limit = "limits: [{ name: two, mode: OVERALL, rate: 2, interval: 1h }]";
    let gateway = TestGateway::start(&rules(&[target], "", limit));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(ask(&gateway, &request("GET", "", b"")).await.status());
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn status_is_retried_only_if_it_is_listed() {
    for (upstream, method, status, requests) in [
        ("retry: { on: [503] }", "GET", 200, 2),
        ("retry: { on: [503] }", "POST", 503, 1),
        ("retry: { on: [500, 502, 504] }", "GET", 503, 1),
        ("", "GET", 503, 1),
    ] {
        let origin = unavailable_once("").await;
        let gateway = gateway(&origin, upstream);
        let response = ask(&gateway, &request(method, "X-Own: yes\r\n", b"")).await;
        assert_eq!((response.status(), origin.requests().len()), (status, requests), "{upstream} {method}");
        assert!(origin.requests().iter().all(|request| request.field("x-own").as_deref() == Some("yes")));
        assert_eq!(response.text(), if status == 200 { "ok" } else { "busy" });
    }
}

#[tokio::test]
async fn status_causes_no_retry_while_the_body_is_being_sent() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        let head = conn.head().await.expect("a head");
        conn.raw.send(if conn.index == 0 { UNAVAILABLE } else { OK }).await;
        assert_eq!(head.field("content-length").as_deref(), Some("8"));
        _ = conn.raw.exactly(8).await;
    })
    .await;
    let gateway = gateway(&origin, "retry: { on: [503] }");
    let mut client = gateway.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf").await;
    assert_eq!((client.response(false).await.status(), origin.connections()), (503, 1));
}

/// Starts an origin that answers its first request with 503 and this field.
async fn unavailable_once(field: &'static str) -> Origin {
    Origin::start(move |mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {
            let response = UNAVAILABLE.replacen("\r\n", &format!("\r\n{field}"), 1);
            conn.raw.send(if conn.index == 0 { response } else { OK.to_owned() }).await;
        }
    })
    .await
}

#[tokio::test]
async fn only_target_is_not_asked_before_its_retry_after() {
    let (origin, start) = (unavailable_once("Retry-After: 1\r\n").await, Instant::now());
    let gateway_of_one = gateway(&origin, "retry: { on: [503] }");
    assert_eq!((ask(&gateway_of_one, &request("GET", "", b"")).await.status(), origin.requests().len()), (200, 2));
    assert!(start.elapsed() >= Duration::from_secs(1));
    let origin = unavailable_once("Retry-After: 60\r\n").await;
    let response = ask(&gateway(&origin, "retry: { on: [503] }"), &request("GET", "", b"")).await;
    assert_eq!((response.status(), response.field("retry-after").as_deref()), (503, Some("60")));
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn request_over_http2_is_sent_again_on_a_new_connection() {
    for (method, body, status) in [("GET", "", 200), ("PUT", "body", 200), ("POST", "body", 502)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (target, connections) =
            (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let index = accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.expect("a handshake");
                    while let Some(Ok((mut request, mut respond))) = connection.accept().await {
                        if index == 0 {
                            return; // closes the connection
                        }
                        tokio::spawn(async move {
                            let mut received = Vec::new();
                            while let Some(Ok(data)) = request.body_mut().data().await {
                                received.extend(data);
                            }
                            let mut stream = respond.send_response(http::Response::new(()), false).expect("a stream");
                            stream.send_data(Bytes::from(received), true).expect("an open stream");
                        });
                    }
                });
            }
        });
        let gateway = TestGateway::start(&rules(&[target], "protocol: http2", ""));
        let response = ask(&gateway, &request(method, "", body.as_bytes())).await;
        assert_eq!(response.status(), status, "{method}");
        match status {
            200 => assert_eq!((response.text().as_str(), connections.load(Ordering::SeqCst)), (body, 2)),
            _ => assert_eq!(connections.load(Ordering::SeqCst), 1),
        }
    }
}

#[tokio::test]
async fn total_timeout_ends_a_request_in_each_phase() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        let request = conn.request().await.expect("a request");
        if request.start.contains("/body") {
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12").await;
        }
        _ = conn.raw.closed().await;
    })
    .await;
    let gateway = gateway(&origin, "timeouts: { total: 3s }");
    let response = gateway.get("/head", "").await;
    assert_eq!((response.status(), origin.connections()), (504, 1));
    assert!(response.text().contains("the deadline has passed"), "{}", response.text());
    let mut client = gateway.client().await;
    client.send("GET /body HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.exactly(2).await.unwrap(), b"12");
    assert!(client.exactly(1).await.is_err(), "the body is broken off");
}

#[tokio::test]
async fn call_that_waits_beyond_its_deadline_stays_charged() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        _ = conn.raw.closed().await;
    })
    .await;
    let limit = "limits: [{ name: two, mode: OVERALL, rate: 2, interval: 1h }]";
    let upstream = "max_connections: 2, queue: 10, queue_timeout: 10s"; // one connection for each worker
    let gateway = TestGateway::start(&rules(&[format!("http://{}", origin.address)], upstream, limit));
    let mut client = Frames::connect(gateway.address, &[]).await;
    client.get(1, "/").await;
    until(|| origin.requests().len() == 1).await;
    let call = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "100m")];
    for stream in [3, 5, 7] {
        client.open(stream, "POST", "/call", &call, true).await;
        assert_eq!(client.status(stream).await, 200); // a gRPC error; calls over the limit do not wait
    }
    assert_eq!(origin.requests().len(), 1);
    let used = gateway.admin_get("/metrics").await.text();
    assert!(used.contains("tidegate_upstream_requests_total{upstream=\"api\",outcome=\"timed_out\"} 1"), "{used}");
}

#[tokio::test]
async fn timeout_of_a_call_is_reduced_by_its_wait_for_a_permit() {
    let origin = Origin::with_response(OK).await;
    let limit = "limits: [{ name: one, mode: OVERALL, rate: 1, interval: 4s, max_wait: 10s }]";
    let gateway = TestGateway::start(&rules(&[format!("http://{}", origin.address)], "", limit));
    let call = "Content-Type: application/grpc\r\nTE: trailers\r\ngrpc-timeout: 10S\r\n";
    for _ in 0..2 {
        ask(&gateway, &request("POST", call, b"")).await;
    }
    let field = origin.last_request().field("grpc-timeout").expect("a timeout");
    let micros: u64 = field.strip_suffix('u').and_then(|micros| micros.parse().ok()).expect("microseconds");
    assert!((1_000_000..9_900_000).contains(&micros), "{field}");
}
