//! Redirects and fixed responses.

use bytes::Bytes;
use http::{Method, Request};

use super::gateway;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const ROUTES: &str = r#"
  - { name: old, match: { path: /old/** }, redirect: { to: "https://example.com{path}{query}", status: 308 } }
  - { name: tls, match: { path: /tls/** }, redirect: { to: "https://{host}{path}", status: 301 } }
  - { name: uri, match: { path: /uri/** }, redirect: { to: "https://example.com{uri}" } }
  - { name: here, match: { path: /here/** }, redirect: { to: "/{path}" } }
  - name: robots
    match: { path: /robots.txt }
    respond: { body: "User-agent: *\n", headers: { Cache-Control: max-age=60 } }
    response_headers: { set: { Strict-Transport-Security: max-age=1, X-Id: "{request_id}" }, remove: [Cache-Control] }
  - { name: gone, match: { path: /gone }, respond: { status: 204 } }
  - { name: same, match: { path: /same }, respond: { status: 304 } }
  - { name: down, match: { path: /down }, respond: { status: 503, body: '{"down":true}', content_type: application/json,
      headers: { Retry-After: "120" } }, limits: [{ name: total, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }] }
"#;

#[tokio::test]
async fn redirects_name_the_original_path() {
    let (_origin, gateway) = gateway(ROUTES).await;
    for (path, status, location) in [
        ("/old/a%20b?x=1&y=%2F", 308, "https://example.com/old/a%20b?x=1&y=%2F"),
        ("/old/../old//evil.example", 308, "https://example.com/old/evil.example"),
        ("/old/@evil.example", 308, "https://example.com/old/@evil.example"),
        ("/tls/x", 301, "https://test.example/tls/x"),
        ("/uri/a%20b?x=1&y=%2F?", 307, "https://example.com/uri/a%20b?x=1&y=%2F?"),
        ("//uri/a%3Fb", 307, "https://example.com/uri/a%3Fb"),
        ("/uri/?", 307, "https://example.com/uri/?"),
        ("/here/x", 307, "/here/x"),
        ("//here/x", 307, "/here/x"),
    ] {
        let response = gateway.get(path, "").await;
        assert_eq!((response.status(), response.field("location").as_deref()), (status, Some(location)), "{path}");
        assert_eq!((response.field("content-length").as_deref(), response.text().as_str()), (Some("0"), ""));
    }
}

#[tokio::test]
async fn redirect_to_the_host_needs_one() {
    let (_origin, gateway) = gateway(ROUTES).await;
    let response = gateway.client().await.ask("GET /tls/evil.example HTTP/1.0\r\n\r\n").await;
    assert_eq!((response.status(), response.field("location")), (400, None));
    let response = gateway.client().await.ask("GET /tls/x HTTP/1.1\r\nHost: evil.example:1@a\r\n\r\n").await;
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn fixed_response_has_its_fields_and_body() {
    let (_origin, gateway) = gateway(ROUTES).await;
    let mut client = gateway.client().await;
    let response = client.ask("GET /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((response.status(), response.text().as_str()), (200, "User-agent: *\n"));
    assert_eq!(response.field("content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(response.field("content-length").as_deref(), Some("14"));
    assert_eq!(response.field("strict-transport-security").as_deref(), Some("max-age=1"));
    assert_eq!(response.field("cache-control"), None);
    assert!(response.field("x-id").is_some() && response.field("x-id") == response.field("x-request-id"));
    client.send("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = client.response(true).await;
    assert_eq!((head.status(), head.field("content-length").as_deref()), (200, Some("14")));
    for (path, status) in [("/gone", 204), ("/same", 304)] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let response = client.response(true).await;
        assert_eq!((response.status(), response.field("content-type")), (status, None));
        assert_eq!(response.field("transfer-encoding"), None);
        assert!(status == 304 || response.field("content-length").is_none(), "{:?}", response.fields);
    }
    // No byte of a body precedes the next response.
    assert_eq!(client.ask("GET /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n").await.status(), 200);
}

#[tokio::test]
async fn limits_apply_before_the_action() {
    let (_origin, gateway) = gateway(ROUTES).await;
    let mut client = gateway.client().await;
    let post = "POST /down HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    for _ in 0..2 {
        let response = client.ask(post).await;
        assert_eq!((response.status(), response.text().as_str()), (503, "{\"down\":true}"));
        assert_eq!(response.field("retry-after").as_deref(), Some("120"));
        assert!(response.field("ratelimit").is_some());
        client = gateway.client().await;
    }
    assert_eq!(client.ask(post).await.status(), 429);
}

#[tokio::test]
async fn actions_work_over_http2() {
    let (_origin, gateway) = gateway(ROUTES).await;
    let socket = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    for (method, path, status, body) in [
        (Method::GET, "/robots.txt", 200, "User-agent: *\n"),
        (Method::HEAD, "/robots.txt", 200, ""),
        (Method::GET, "/gone", 204, ""),
        (Method::GET, "/old/x?y", 308, ""),
    ] {
        let request = Request::builder().method(method).uri(format!("http://a.example{path}")).body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let (head, mut received) = soon(response).await.unwrap().into_parts();
        let data = soon(received.data()).await.transpose().unwrap().unwrap_or(Bytes::new());
        assert_eq!((head.status.as_u16(), &data[..]), (status, body.as_bytes()), "{path}");
        let location = head.headers.get("location").map(|value| value.to_str().unwrap());
        assert_eq!(location, (status == 308).then_some("https://example.com/old/x?y"));
    }
}

#[tokio::test]
async fn explain_and_config_show_the_action() {
    let (_origin, gateway) = gateway(ROUTES).await;
    let config = gateway.config().await;
    assert!(config.contains("https://example.com{path}{query}"), "{config}");
    let body = r#"{"method":"GET","url":"http://a/old/x"}"#;
    let request = format!(
        "POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = Raw::connect(gateway.admin).await.ask(request).await.text();
    assert!(text.contains("redirected with 308") && text.contains("https://example.com/old/x"), "{text}");
}
