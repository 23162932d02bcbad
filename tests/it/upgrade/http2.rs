//! Tunnels over HTTP/2 (extended CONNECT, RFC 8441).

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::*;
use crate::support::wire::frames::*;

/// The fields of a request for a tunnel.
const CONNECT_FIELDS: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "http"),
    (":authority", "a.example"),
    (":path", "/chat?room=1"),
    ("sec-websocket-version", "13"),
];

pub async fn open_tunnel(client: &mut Frames, stream: u32, path: &str, more: &[(&str, &str)]) {
    let mut block = CONNECT_FIELDS.to_vec();
    block[4].1 = path;
    block.extend(more);
    client.frame(HEADERS, END_HEADERS, stream, &fields(block)).await;
}

/// Reads `count` bytes of a stream.
async fn take(client: &mut Frames, stream: u32, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        bytes.extend(client.find(|frame| (frame.stream, frame.kind) == (stream, DATA)).await.payload);
    }
    bytes
}

/// Starts an origin that accepts WebSocket and echoes all bytes.
async fn server() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        let request = conn.request().await.expect("a request");
        conn.raw.send(switch(&request)).await;
        let (mut read, mut write) = conn.raw.stream.split();
        tokio::io::copy(&mut read, &mut write).await.ok();
    })
    .await
}

/// Returns the response that accepts the WebSocket of this request.
pub fn switch(request: &Message) -> String {
    let key = request.field("sec-websocket-key").expect("a key");
    SWITCH.replace("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", &accept(&key))
}

/// Returns `Sec-WebSocket-Accept` (RFC 6455 section 4.2.2), without code of the gateway.
fn accept(key: &str) -> String {
    let digest = sha1_smol::Sha1::from(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")).digest();
    BASE64_STANDARD.encode(digest.bytes())
}

#[tokio::test]
async fn websocket_over_http2_is_an_upgrade_upstream() {
    let origin = server().await;
    let gateway = gateway(&origin, "limits: [{ name: shakes, mode: OVERALL, rate: 1, interval: 1h }]");
    let mut client = Frames::connect(gateway.address, &[]).await;
    let settings = client.find(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0).await;
    assert!(settings.payload.chunks(6).any(|one| one == [0, 8, 0, 0, 0, 1]), "{settings:?}");
    open_tunnel(&mut client, 1, "/chat?room=1", &[("sec-websocket-protocol", "chat")]).await;
    let response = client.find(|frame| (frame.stream, frame.kind) == (1, HEADERS)).await;
    assert_eq!((response.status(), response.ends_stream()), (200, false));
    let sent = origin.last_request();
    assert_eq!(sent.start, "GET /chat?room=1 HTTP/1.1");
    for (name, value) in [
        ("host", Some("a.example")),
        ("connection", Some("upgrade")),
        ("upgrade", Some("websocket")),
        ("sec-websocket-version", Some("13")),
        ("sec-websocket-protocol", Some("chat")),
        ("transfer-encoding", None),
        ("content-length", None),
    ] {
        assert_eq!(sent.field(name).as_deref(), value, "{name}: {sent:?}");
    }
    for _ in 0..3 {
        client.frame(DATA, 0, 1, b"hello").await;
        assert_eq!(take(&mut client, 1, 5).await, b"hello");
    }
    assert_eq!(count_open(&gateway).await, 1);
    open_tunnel(&mut client, 3, "/", &[]).await;
    assert_eq!(client.status(3).await, 429);
    // The origin closes its half when the client closes its own.
    client.frame(DATA, END_STREAM, 1, b"bye").await;
    let rest = client.rest_of_stream(1).await;
    assert_eq!(rest.iter().flat_map(|frame| frame.payload.clone()).collect::<Vec<_>>(), b"bye");
    wait_for_end(&gateway, "closed").await;
}

#[tokio::test]
async fn origin_can_close_its_half_first() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(SWITCH.replace("websocket", "tcp")).await;
        conn.raw.send("first").await;
        conn.raw.stream.shutdown().await.unwrap();
        assert_eq!(conn.raw.rest().await.unwrap(), b"last");
    })
    .await;
    let gateway = gateway(&origin, "upgrades: [tcp]");
    let mut client = Frames::connect(gateway.address, &[]).await;
    let mut block = CONNECT_FIELDS.to_vec();
    block[1].1 = "tcp";
    client.frame(HEADERS, END_HEADERS, 1, &fields(block)).await;
    assert_eq!(client.status(1).await, 200);
    let received: Vec<_> = client.rest_of_stream(1).await.into_iter().flat_map(|frame| frame.payload).collect();
    assert_eq!(received, b"first");
    client.frame(DATA, END_STREAM, 1, b"last").await;
    wait_for_end(&gateway, "closed").await;
}

#[tokio::test]
async fn impossible_tunnel_is_rejected() {
    let origin = echo().await;
    let gateway = gateway(&origin, "");
    let mut client = Frames::connect(gateway.address, &[]).await;
    // The origin returns a wrong `Sec-WebSocket-Accept`, or rejects the upgrade.
    for (stream, path, status) in [(1, "/", 502), (3, "/refused", 403)] {
        open_tunnel(&mut client, stream, path, &[]).await;
        assert_eq!(client.status(stream).await, status, "{path}");
    }
    for (stream, protocol) in [(5, "tcp"), (7, "h2c"), (9, "")] {
        let mut block = CONNECT_FIELDS.to_vec();
        block[1].1 = protocol;
        client.frame(HEADERS, END_HEADERS, stream, &fields(block)).await;
        assert_eq!(client.status(stream).await, 501, "{protocol}");
    }
    let simple = [(":method", "CONNECT"), (":authority", "a.example:80")];
    client.frame(HEADERS, END_HEADERS, 11, &fields(simple)).await;
    assert_eq!(client.status(11).await, 501);
    // `:protocol` belongs to CONNECT.
    let get =
        [(":method", "GET"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.frame(HEADERS, END_STREAM | END_HEADERS, 13, &fields(get)).await;
    assert_eq!(client.reset_code(13).await, PROTOCOL_ERROR);
    open_tunnel(&mut client, 15, "/", &[("content-length", "5")]).await;
    assert!(matches!(
        client.find(|frame| frame.stream == 15 && frame.kind != WINDOW_UPDATE).await.kind,
        HEADERS | RST_STREAM
    ));
    assert_eq!((count_open(&gateway).await, origin.requests().len()), (0, 2));
    let plain = Origin::with_response(OK).await;
    let gateway = super::gateway(&plain, "");
    let mut client = Frames::connect(gateway.address, &[]).await;
    open_tunnel(&mut client, 1, "/", &[]).await;
    client.frame(DATA, 0, 1, b"not yet").await;
    assert_eq!(client.status(1).await, 502);
    assert_eq!(plain.last_request().body, b"");
}

/// Regression test: such a tunnel took a permit and gave it back, so that no limit applied to a flood of them.
#[tokio::test]
async fn impossible_tunnel_takes_no_permit() {
    let origin = server().await;
    let limits = "limits: [{ name: shakes, mode: OVERALL, rate: 1, interval: 1h }]";
    for (upstream, protocol) in [("", "tcp"), ("protocol: http2", "websocket")] {
        let gateway = TestGateway::start(&rules(&origin, limits, upstream));
        let mut client = Frames::connect(gateway.address, &[]).await;
        let mut block = CONNECT_FIELDS.to_vec();
        block[1].1 = protocol;
        for stream in [1, 3, 5] {
            client.frame(HEADERS, END_HEADERS, stream, &fields(block.clone())).await;
            assert_eq!(client.status(stream).await, 501, "{protocol}");
        }
        for outcome in ["allowed", "limited"] {
            let series = format!("tidegate_decisions_total{{route=\"all\",limit=\"shakes\",outcome=\"{outcome}\"}}");
            assert_eq!(gateway.counter(&series).await, 0, "{protocol} is {outcome}");
        }
    }
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn only_upgrade_limits_apply_to_tunnels() {
    let origin = server().await;
    let listen = "{ address: 127.0.0.1:0, body_timeout: 2s, idle_timeout: 2s, min_rate: 1MiB }";
    let rules = rules(&origin, "max_body: 1B, upgrades: { idle_timeout: 5s }", "timeouts: { idle: 2s }");
    let gateway = TestGateway::start_at(listen, &rules);
    let mut client = Frames::connect(gateway.address, &[]).await;
    open_tunnel(&mut client, 1, "/", &[]).await;
    assert_eq!(client.status(1).await, 200);
    client.frame(DATA, 0, 1, b"many bytes").await;
    assert_eq!(take(&mut client, 1, 10).await, b"many bytes");
    loop {
        let frame = client.next().await.expect("the connection stays");
        match frame.kind {
            PING if frame.flags & ACK == 0 => client.frame(PING, ACK, 0, &frame.payload).await,
            DATA if frame.ends_stream() => break,
            _ => {}
        }
    }
    wait_for_end(&gateway, "idle").await;
}

#[tokio::test]
async fn reset_passes_between_stream_and_connection() {
    let origin = server().await;
    let gateway = gateway(&origin, "");
    let mut client = Frames::connect(gateway.address, &[]).await;
    open_tunnel(&mut client, 1, "/", &[]).await;
    assert_eq!(client.status(1).await, 200);
    client.reset(1).await;
    while count_open(&gateway).await > 0 {
        tokio::task::yield_now().await;
    }
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        let request = conn.request().await.expect("a request");
        conn.raw.send(switch(&request)).await;
        conn.raw.exactly(1).await.unwrap();
        conn.raw.stream.set_zero_linger().unwrap();
    })
    .await;
    let gateway = super::gateway(&origin, "");
    let mut client = Frames::connect(gateway.address, &[]).await;
    open_tunnel(&mut client, 1, "/", &[]).await;
    assert_eq!(client.status(1).await, 200);
    client.frame(DATA, 0, 1, b"x").await;
    assert_eq!(client.reset_code(1).await, CANCEL);
}
