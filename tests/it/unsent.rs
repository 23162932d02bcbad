//! Requests that no upstream receives: permits are given back only if the cause is on the side of the gateway or the
//! upstream. Otherwise a client could repeat such requests without end.

use tokio::io::AsyncWriteExt;

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::Origin;

const CALL: &str = "Content-Type: application/grpc\r\nTE: trailers\r\nContent-Length: 0\r\n";

/// Starts a gateway whose limit grants three requests.
fn gateway(target: &str, route: &str) -> TestGateway {
    TestGateway::start(&format!(
        "upstreams: {{ api: {{ targets: ['{target}'], eject: off, retry: off }} }}
routes:
  - {{ name: all, match: {{}}, upstream: api, {route} limits: [{{ name: l, mode: OVERALL, rate: 3, interval: 1h }}] }}"
    ))
}

/// Sends a request. The client sends nothing after it.
async fn send(gateway: &TestGateway, request: &str) -> Option<Message> {
    let mut client = gateway.client().await;
    client.send(request).await;
    client.stream.shutdown().await.expect("the request is sent");
    client.try_message(false, true).await.ok()
}

#[tokio::test]
async fn request_that_its_client_keeps_from_being_sent_stays_charged() {
    for (cause, request) in [
        ("a deadline that has passed", format!("POST / HTTP/1.1\r\nHost: a\r\n{CALL}grpc-timeout: 1n\r\n\r\n")),
        ("Max-Forwards", "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n".to_owned()),
        ("TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("no chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned()),
        ("half a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf".to_owned()),
        (
            "a long body",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n".to_owned(),
        ),
        (
            "no body after Expect",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\n".to_owned(),
        ),
    ] {
        let gateway = gateway("builtin:echo", "max_body: 8B,");
        for _ in 0..3 {
            _ = send(&gateway, &request).await;
        }
        assert_eq!(gateway.get("/", "").await.status(), 429, "{cause}");
    }
}

#[tokio::test]
async fn request_that_no_target_can_take_gets_its_permit_back() {
    let gateway = gateway(&format!("http://{}", Origin::closed_port()), "");
    for _ in 0..5 {
        assert_eq!(gateway.get("/", "").await.status(), 502);
    }
}

/// Regression test: each call was charged, not sent, and its permit was given back.
#[tokio::test]
async fn calls_without_time_are_limited() {
    let gateway = gateway("builtin:echo", "");
    let call = format!("POST / HTTP/1.1\r\nHost: a\r\n{CALL}grpc-timeout: 1n\r\n\r\n");
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let response = send(&gateway, &call).await.expect("a response");
        statuses.push(response.field("grpc-status").expect("a gRPC status"));
    }
    assert_eq!(statuses, ["4", "4", "4", "8", "8", "8"]);
}
