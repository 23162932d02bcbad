//! `max_body`, the maximum length of a request body.

use crate::support::gateway::TestGateway;
use crate::support::wire::upstream::{Origin, OriginConnection};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn rules(origin: &Origin) -> String {
    format!(
        "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes:
  - name: small
    match: {{ path: /small }}
    upstream: api
    max_body: 5B
    limits: [{{ name: total, mode: OVERALL, rate: 100, interval: 1h }}]
  - {{ name: rest, match: {{ path: /** }}, upstream: api }}",
        origin.address
    )
}

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

#[tokio::test]
async fn declared_long_body_is_rejected_uncharged() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&origin));
    let mut client = gateway.client().await;
    assert_eq!(client.ask(post("/small", "Content-Length: 5", "12345")).await.status(), 200);
    let refused = client.ask(post("/small", "Content-Length: 6", "123456")).await;
    assert_eq!((refused.status(), refused.field("content-type").as_deref()), (413, Some("application/problem+json")));
    assert!(refused.start.ends_with(" 413 Content Too Large"), "{}", refused.start);
    assert!(refused.text().contains(r#""title":"Content Too Large""#), "{}", refused.text());
    assert_eq!(client.ask(post("/other", "Content-Length: 6", "123456")).await.status(), 200);
    // For GET, which usually has no body, the gateway checks the length only when it forwards the body.
    let get = post("/small", "Content-Length: 6", "123456").replace("POST", "GET");
    assert_eq!(client.ask(get).await.status(), 413);
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"max_body\"}").await, 1);
}

#[tokio::test]
async fn chunked_body_above_max_body_is_413() {
    let origin =
        Origin::start(|mut conn: OriginConnection| async move { while conn.request().await.is_some() {} }).await;
    let gateway = TestGateway::start(&rules(&origin));
    let mut client = gateway.client().await;
    let body = "3\r\n123\r\n3\r\n456\r\n";
    let refused = client.ask(post("/small", "Transfer-Encoding: chunked", body)).await;
    assert_eq!((refused.status(), refused.field("connection").as_deref()), (413, Some("close")));
    client.closed().await.unwrap();
    assert!(origin.requests().is_empty(), "the origin accepted an incomplete request");
}
