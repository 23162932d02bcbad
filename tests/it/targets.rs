//! Request targets of all forms, sent as raw bytes through a gateway.

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Starts a gateway with a route for one host, a route that counts by host, and a route for all other requests.
fn start(origin: &Origin) -> TestGateway {
    TestGateway::start(&format!(
        "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes:
  - {{ name: named, match: {{ host: named.example }}, upstream: api }}
  - name: counted
    match: {{ path: /counted }}
    upstream: api
    limits: [{{ name: host, mode: PER_CLIENT, client: host, rate: 9, interval: 1h }}]
  - {{ name: rest, match: {{ path: /** }}, upstream: api }}",
        origin.address
    ))
}

async fn ask(gateway: &TestGateway, head: impl AsRef<[u8]>) -> Message {
    gateway.client().await.ask([head.as_ref(), b"\r\n\r\n"].concat()).await
}

#[tokio::test]
async fn http_1_0_request_gets_the_upstream_host() {
    let origin = Origin::with_response(OK).await;
    let gateway = start(&origin);
    assert_eq!(ask(&gateway, "GET /health HTTP/1.0").await.status(), 200);
    let sent = origin.last_request();
    assert_eq!(sent.start, "GET /health HTTP/1.1");
    assert_eq!(sent.field("host"), Some(origin.address.to_string()));
    assert_eq!(sent.field("x-forwarded-host"), None);
    assert_eq!(ask(&gateway, "GET /counted HTTP/1.0").await.status(), 400, "a missing client");
    assert_eq!(ask(&gateway, "GET /counted HTTP/1.0\r\nHost: a").await.status(), 200);
    assert_eq!(origin.last_request().field("host").as_deref(), Some("a"));
    for bad in ["GET / HTTP/1.1", "GET / HTTP/1.0\r\nHost: a\r\nHost: b", "GET / HTTP/1.0\r\nHost:"] {
        assert_eq!(ask(&gateway, bad).await.status(), 400, "{bad}");
    }
}

#[tokio::test]
async fn gateway_answers_requests_addressed_to_itself() {
    let origin = Origin::with_response(OK).await;
    let gateway = start(&origin);
    for (head, status) in [
        ("OPTIONS * HTTP/1.1\r\nHost: a", 204),
        ("OPTIONS * HTTP/1.0", 204),
        ("OPTIONS * HTTP/1.1", 400),
        ("OPTIONS /x HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0", 204),
        ("GET * HTTP/1.1\r\nHost: a", 400),
        ("options * HTTP/1.1\r\nHost: a", 400),
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443", 501),
        ("CONNECT a.example:443 HTTP/1.1", 501),
        ("connect a.example:443 HTTP/1.1\r\nHost: a.example:443", 400),
        ("GET a.example:443 HTTP/1.1\r\nHost: a.example:443", 400),
        ("TRACE /x HTTP/1.1\r\nHost: a", 501),
        ("TRACE /x HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3", 501),
        ("TRACE /x HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0", 200),
    ] {
        let response = ask(&gateway, head).await;
        assert_eq!(response.status(), status, "{head}: {}", response.text());
        if status == 501 && head.starts_with("CONNECT") {
            assert!(response.text().contains("CONNECT is not supported"), "{}", response.text());
            assert_eq!(response.field("connection").as_deref(), Some("close"));
        }
    }
    assert!(origin.requests().is_empty());
    assert_eq!(ask(&gateway, "OPTIONS /x HTTP/1.1\r\nHost: a\r\nMax-Forwards: 5").await.status(), 200);
    assert_eq!(origin.last_request().field("max-forwards").as_deref(), Some("4"));
}

#[tokio::test]
async fn bytes_after_a_rejected_connect_are_discarded() {
    let origin = Origin::with_response(OK).await;
    let gateway = start(&origin);
    let mut client = gateway.client().await;
    client.send("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.response(false).await.status(), 501);
    _ = client.closed().await; // unread bytes may cause a reset
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn target_allows_quotes_but_only_ascii() {
    let origin = Origin::with_response(OK).await;
    let gateway = start(&origin);
    assert_eq!(ask(&gateway, "GET /a\"b?c=\"d\"&e HTTP/1.1\r\nHost: a").await.status(), 200);
    assert_eq!(origin.last_request().start, "GET /a\"b?c=%22d%22&e HTTP/1.1");
    for target in [&b"/caf\xc3\xa9"[..], b"/?caf\xc3\xa9", b"/\xff", b"/?\xff", b"/?a\x7f", b"/a\x7f"] {
        let head = [b"GET ", target, b" HTTP/1.1\r\nHost: a"].concat();
        assert_eq!(ask(&gateway, head).await.status(), 400, "{}", target.escape_ascii());
    }
    assert_eq!(origin.requests().len(), 1);
}

/// Regression test: `max_target` could only be lowered, because the parser of the path had its own limit.
#[tokio::test]
async fn max_target_limits_the_target_length() {
    let origin = Origin::with_response(OK).await;
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{}}, upstream: api }}]",
        origin.address
    );
    let gateway = TestGateway::start_at("{ address: 127.0.0.1:0, max_target: 20KiB }", &rules);
    let path = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a", "x".repeat(length - 1));
    for (length, status) in [(20 * 1024, 200), (20 * 1024 + 1, 414)] {
        assert_eq!(ask(&gateway, path(length)).await.status(), status, "{length}");
    }
}
