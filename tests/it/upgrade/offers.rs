//! Upgrade requests that reach an upstream, and validation of its 101 responses.

use super::*;

#[tokio::test]
async fn handshake_is_forwarded_and_charged_once() {
    let origin = echo().await;
    let limits = "limits: [{ name: shakes, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]";
    let gateway = gateway(&origin, limits);
    let mut client = gateway.client().await;
    client.send(handshake("/chat?room=1", "TE: trailers\r\n")).await;
    let response = client.head().await.unwrap();
    assert_eq!(response.start, "HTTP/1.1 101 Switching Protocols");
    for (name, value) in [
        ("connection", Some("upgrade")),
        ("upgrade", Some("websocket")),
        ("sec-websocket-accept", Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
        ("transfer-encoding", None),
        ("content-length", None),
        ("ratelimit", Some("\"shakes\";r=0;t=3600")),
    ] {
        assert_eq!(response.field(name).as_deref(), value, "{name}: {response:?}");
    }
    let sent = origin.last_request();
    assert_eq!(sent.start, "GET /chat?room=1 HTTP/1.1");
    for (name, value) in [
        ("connection", Some("upgrade")),
        ("upgrade", Some("websocket")),
        ("te", None),
        ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25jZQ==")),
        ("x-forwarded-for", Some("127.0.0.1")),
    ] {
        assert_eq!(sent.field(name).as_deref(), value, "{name}: {sent:?}");
    }
    for _ in 0..3 {
        client.send("hello").await;
        assert_eq!(client.exactly(5).await.unwrap(), b"hello");
    }
    assert_eq!(count_open(&gateway).await, 1);
    let refused = gateway.client().await.ask(handshake("/", "")).await;
    assert_eq!((refused.status(), refused.field("connection").as_deref()), (429, Some("close")));
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn bytes_after_an_upgrade_request_are_no_request() {
    let origin = echo().await;
    let gateway = gateway(&origin, "");
    let behind = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for path in ["/refused", "/..%5c"] {
        let mut client = gateway.client().await;
        client.send(handshake(path, "") + behind).await;
        let response = client.response(false).await;
        assert!(matches!(response.status(), 400 | 403), "{response:?}");
        assert_eq!(response.field("connection").as_deref(), Some("close"));
        client.closed().await.ok(); // unread bytes may make it a reset
    }
    // After an accepted upgrade the bytes belong to the other protocol.
    let mut client = gateway.client().await;
    client.send(handshake("/", "") + behind).await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    assert_eq!(client.exactly(behind.len()).await.unwrap(), behind.as_bytes());
    assert!(origin.requests().iter().all(|request| !request.start.contains("smuggled")));
}

#[tokio::test]
async fn response_other_than_101_is_forwarded() {
    let origin = echo().await;
    let gateway = gateway(&origin, "");
    let response = gateway.client().await.ask(handshake("/refused", "")).await;
    assert_eq!((response.status(), response.text().as_str()), (403, "no"));
    assert_eq!((response.field("upgrade"), count_open(&gateway).await), (None, 0));
}

/// Sends a request. Returns the `Upgrade` field that the origin received, and the response.
async fn offered_upgrade(
    gateway: &TestGateway,
    origin: &Origin,
    request: impl AsRef<[u8]>,
) -> (Option<String>, Message) {
    let mut client = gateway.client().await;
    client.send(request).await;
    let response = client.head().await.expect("a response");
    (origin.last_request().field("upgrade"), response)
}

#[tokio::test]
async fn only_protocols_of_the_route_are_offered() {
    let origin = Origin::with_response(OK).await;
    let offer = |offer: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {offer}\r\n\r\n");
    for (route, offered, expected) in [
        ("", "websocket", Some("websocket")),
        ("", "WebSocket", Some("websocket")),
        ("", "x, websocket", Some("websocket")),
        ("", "x", None),
        ("", "websocket/13", None),
        ("", "h2c", None),
        ("upgrades: []", "websocket", None),
        ("upgrades: [Tcp, SPDY/3.1]", "spdy/3.1,tcp", Some("SPDY/3.1")),
        ("upgrades: { protocols: [tcp] }", "websocket", None),
        ("upgrades: { idle_timeout: 1m }", "websocket", Some("websocket")),
    ] {
        let gateway = gateway(&origin, route);
        let (offered_upgrade, response) = offered_upgrade(&gateway, &origin, offer(offered)).await;
        assert_eq!((offered_upgrade.as_deref(), response.status()), (expected, 200), "{route} {offered}");
        let expected_of_connection = expected.map(|_| "upgrade");
        assert_eq!(origin.last_request().field("connection").as_deref(), expected_of_connection, "{route} {offered}");
    }
}

#[tokio::test]
async fn incomplete_upgrade_request_is_a_plain_request() {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, "");
    for (what, head) in [
        ("HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        ("not in Connection", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n"),
        ("no Upgrade", "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n"),
        (
            "two lines",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n\r\n",
        ),
        (
            "a body",
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi",
        ),
        (
            "a body in chunks",
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
    ] {
        let (offered_upgrade, response) = offered_upgrade(&gateway, &origin, head).await;
        assert_eq!((offered_upgrade, response.status()), (None, 200), "{what}");
    }
}

/// Java clients offer h2c in the first request of a connection, and reuse the connection.
#[tokio::test]
async fn h2c_upgrade_request_is_ignored() {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, "");
    let mut client = gateway.client().await;
    let offer = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                 HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    for _ in 0..2 {
        let response = client.ask(offer).await;
        assert_eq!((response.status(), response.field("connection")), (200, None));
        assert_eq!(
            (origin.last_request().field("upgrade"), origin.last_request().field("http2-settings")),
            (None, None)
        );
    }
}

#[tokio::test]
async fn unexpected_101_is_502() {
    for (what, response) in [
        ("another protocol", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"),
        ("two protocols", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket, h2c\r\n\r\n"),
        ("two lines", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n\r\n"),
        ("no protocol", "HTTP/1.1 101 S\r\nConnection: upgrade\r\n\r\n"),
        ("no option", "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n"),
        ("a length", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi"),
        ("chunks", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ] {
        let origin = Origin::with_response(response).await;
        let gateway = gateway(&origin, "");
        let forwarded = gateway.client().await.ask(handshake("/", "")).await;
        assert_eq!((forwarded.status(), count_open(&gateway).await), (502, 0), "{what}");
    }
    let origin = Origin::with_response(SWITCH).await;
    for (route, request) in [
        ("", "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (
            "",
            "PUT / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi"
                .to_owned(),
        ),
        ("upgrades: []", handshake("/", "")),
        ("upgrades: [tcp]", handshake("/", "")),
    ] {
        let gateway = gateway(&origin, route);
        assert_eq!(gateway.client().await.ask(request).await.status(), 502, "{route}");
    }
}
