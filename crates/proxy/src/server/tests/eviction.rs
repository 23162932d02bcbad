//! Evictions when all slots are in use: connections that wait for their clients are closed, requests continue.

use http::StatusCode;

use super::*;
use crate::wire::frames::{self, DATA, END_HEADERS, Frames, HEADERS};
use tidegate_rules::route::upgrade::Offer;

/// Longer than a client must be silent, or a body must stall, before its connection may be evicted.
const EVICTION_WAIT: Duration = Duration::from_millis(300);

fn is_evicted(running: &Running, cause: &str) -> bool {
    running.metrics.render().contains(&format!("tidegate_rejected_total{{cause=\"evicted_{cause}\"}} 1\n"))
}

async fn connect(from: &str, server: &Running) -> Raw {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    Raw::new(soon(socket.connect(server.address)).await.unwrap())
}

async fn is_served(server: &Running) -> bool {
    Raw::connect(server.address).await.ask(get("/")).await.status() == 200
}

/// Connects until a connection has waited long enough to be evicted.
async fn wait_until_served(server: &Running) {
    soon(async { while !is_served(server).await {} }).await;
}

fn with_cap(max_connections: usize) -> Listen {
    Listen { max_connections, ..listen() }
}

#[tokio::test]
async fn new_connection_evicts_the_oldest_of_the_largest_client() {
    let server = start(&with_cap(4), describe);
    let mut clients = Vec::new();
    for from in ["127.0.0.3", "127.0.0.2", "127.0.0.2", "127.0.0.4"] {
        let mut client = connect(from, &server).await;
        assert_eq!(client.ask(get("/")).await.status(), 200);
        clients.push(client);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(EVICTION_WAIT).await;
    assert!(is_served(&server).await);
    clients.remove(1).closed().await.unwrap();
    assert!(is_evicted(&server, "idle"));
    for mut client in clients {
        assert_eq!(client.ask(get("/")).await.status(), 200);
    }
}

#[tokio::test]
async fn new_connection_is_not_evicted() {
    let server = start(&with_cap(2), describe);
    let (_one, _other) = (Raw::connect(server.address).await, Raw::connect(server.address).await);
    until(|| server.metrics.render().contains("tidegate_connections 2")).await;
    assert!(!is_served(&server).await);
}

#[tokio::test]
async fn connection_with_half_a_head_is_evicted() {
    let server = start(&with_cap(1), describe);
    let mut client = Raw::connect(server.address).await;
    client.send("GET / HTTP/1.1\r\nHo").await;
    wait_until_served(&server).await;
    assert!(is_evicted(&server, "head"));
    assert_eq!(client.rest().await.unwrap_or_default(), b"");
}

#[tokio::test]
async fn stalled_upload_is_evicted() {
    let server = start(&with_cap(1), describe);
    let mut client = Raw::connect(server.address).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234").await;
    wait_until_served(&server).await;
    assert!(is_evicted(&server, "upload"));
    assert_eq!(client.rest().await.unwrap_or_default(), b"");
}

#[tokio::test]
async fn unread_response_is_evicted_with_a_reset() {
    let server = start(&with_cap(1), |request: Request<RequestBody>, peer| async move {
        match request.uri().path() {
            "/large" => Response::new(Full::from(vec![b'x'; 64 << 20])),
            _ => describe(request, peer).await,
        }
    });
    let mut client = Raw::connect(server.address).await;
    client.send(get("/large")).await;
    wait_until_served(&server).await;
    assert!(is_evicted(&server, "reader"));
    assert_eq!(client.rest().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn http2_connection_is_evicted_if_all_streams_wait() {
    let server = start(&with_cap(1), describe);
    let (mut sender, connection) = http2(server.address).await;
    soon(sender.send_request(empty("http://a/x"))).await.unwrap();
    wait_until_served(&server).await;
    assert!(is_evicted(&server, "idle"));
    _ = soon(connection).await.unwrap();

    until(|| server.metrics.render().contains("tidegate_connections 0")).await;
    let mut shut = Raw::connect(server.address).await;
    // SETTINGS with a window of 0 for all streams, and GET `/x` with the authority `a` (RFC 9113 sections 3.4 and 6).
    shut.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0").await;
    shut.send(b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x04\x02/x\x01\x01a").await;
    wait_until_served(&server).await;
    assert!(is_evicted(&server, "streams"));
}

/// Accepts upgrades, and echoes the body.
async fn tunnel(request: Request<RequestBody>, _: SocketAddr) -> Response<RequestBody> {
    let is_tunnel = request.extensions().get::<Offer>().is_some();
    let mut response = Response::new(request.into_body());
    *response.status_mut() = if is_tunnel { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
    response
}

async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn http2_tunnels_are_evicted_after_a_silent_minute() {
    let server = start(&Listen { body_timeout: 5 * LONG, ..with_cap(1) }, tunnel);
    let mut client = Frames::connect(server.address, &[]).await;
    let mut fields = frames::request_fields("CONNECT", "/").to_vec();
    fields.push((":protocol", "websocket"));
    client.frame(HEADERS, END_HEADERS, 1, &frames::fields(fields)).await;
    assert_eq!(client.status(1).await, 200);
    pass(50).await;
    client.frame(DATA, 0, 1, b"hello").await;
    assert_eq!(client.find(|frame| frame.kind == DATA).await.payload, b"hello");
    pass(50).await;
    assert!(!is_served(&server).await);
    pass(20).await;
    wait_until_served(&server).await;
    assert!(is_evicted(&server, "upgraded"));
}

#[tokio::test]
async fn request_in_flight_is_not_evicted() {
    let release = Arc::new(Notify::new());
    let gate = release.clone();
    let server = start(&with_cap(2), move |request, peer| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            describe(request, peer).await
        }
    });
    let mut one = Raw::connect(server.address).await;
    one.send(get("/1")).await;
    let (mut other, connection) = http2(server.address).await;
    let pending = tokio::spawn(async move { other.send_request(empty("http://a/2")).await });
    tokio::time::sleep(EVICTION_WAIT).await;
    assert!(!is_served(&server).await);
    release.notify_waiters();
    assert_eq!(one.response(false).await.text(), "GET /1");
    assert_eq!(soon(pending).await.unwrap().unwrap().status(), 200);
    connection.abort();
}

#[tokio::test]
async fn client_at_its_cap_evicts_no_other_connection() {
    let server = start(&Listen { max_connections_per_client: 1, ..with_cap(2) }, describe);
    let (mut own, mut others) = (connect("127.0.0.2", &server).await, connect("127.0.0.3", &server).await);
    tokio::time::sleep(EVICTION_WAIT).await;
    let mut second = connect("127.0.0.2", &server).await;
    assert_eq!(second.response(false).await.status(), 503);
    assert_eq!(own.ask(get("/")).await.status(), 200);
    assert_eq!(others.ask(get("/")).await.status(), 200);
}
