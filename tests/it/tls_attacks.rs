//! TLS clients that are slow, broken or hostile, and connections that end early.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::gateway::{TestGateway, get};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

const ECHO: &str = "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: all, match: { path: /** }, upstream: echo }]";

fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority
}

fn start(authority: &Authority, settings: &str, rules: &str) -> TestGateway {
    let entry = listener(authority, &["api"], "").replace("tls:", &format!("{settings}tls:"));
    TestGateway::start_at(&entry, rules)
}

async fn rejected(gateway: &TestGateway, cause: &str) -> u64 {
    gateway.counter(&format!("tidegate_rejected_total{{cause=\"{cause}\"}}")).await
}

/// A stream that writes one byte at a time.
struct ByteByByte(TcpStream);

impl AsyncRead for ByteByByte {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ByteByByte {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, &bytes[..bytes.len().min(1)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn handshake_can_arrive_byte_by_byte() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let connector = TlsConnector::from(TlsClient::new(&authority).config());
    let name = ServerName::try_from("api.example").unwrap();
    let stream = soon(connector.connect(name, ByteByByte(stream))).await.unwrap();
    assert_eq!(get(&mut Raw::new(stream), "/", "").await.status(), 200);
}

#[tokio::test]
async fn invalid_tls_bytes_are_rejected_and_counted() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let garbage: Vec<u8> = [22, 3, 1].into_iter().chain((0..=250).cycle().step_by(7).take(16 * 1024)).collect();
    let mut client = gateway.client().await;
    client.send(&garbage).await;
    _ = client.rest().await;
    assert_eq!(rejected(&gateway, "bad_handshake").await, 1);
    let mut client = gateway.client().await;
    client.send([0; 16 * 1024]).await;
    _ = client.rest().await;
    assert_eq!(rejected(&gateway, "not_tls").await, 1);
}

/// A ClientHello with a declared length of 16 MB.
#[tokio::test]
async fn endless_client_hello_is_rejected_early() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let mut client = gateway.client().await;
    client.send([&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff, 3, 3][..], &[7; 16 * 1024 - 6]].concat()).await;
    let record = [&[22, 3, 1, 0x40, 0][..], &[7; 16 * 1024]].concat();
    let mut sent = 0;
    while sent < 4096 && client.stream.write_all(&record).await.is_ok() {
        sent += 1;
    }
    // The gateway discards some bytes after its alert, and the kernel buffers some, so writes succeed for a while.
    until_rejected(&gateway, "bad_handshake").await;
}

/// Waits until the gateway has counted a rejection with this cause.
async fn until_rejected(gateway: &TestGateway, cause: &str) {
    soon(async { while rejected(gateway, cause).await == 0 {} }).await;
}

#[tokio::test]
async fn stalled_handshakes_do_not_delay_other_clients() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let mut stuck = Vec::new();
    for _ in 0..50 {
        let mut client = gateway.client().await;
        client.send([22, 3, 1, 2, 0, 1, 0]).await;
        stuck.push(client);
    }
    let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
}

#[tokio::test]
async fn stalled_handshakes_are_evicted_for_new_clients() {
    let authority = authority();
    let gateway = start(&authority, "max_connections: 4, ", ECHO);
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut client = gateway.client().await;
        client.send([22, 3, 1, 2, 0, 1, 0]).await;
        stuck.push(client);
    }
    // A stalled handshake can be evicted only after a minimum wait.
    let client = TlsClient::new(&authority);
    let mut client = soon(async {
        loop {
            if let Ok(client) = client.connect(gateway.address).await {
                return client;
            }
        }
    })
    .await;
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
}

/// The origin reports whether it has received a complete request.
#[tokio::test]
async fn truncated_body_is_not_forwarded_as_complete() {
    let authority = authority();
    let (report, mut is_complete) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let report = report.clone();
        async move { _ = report.send(conn.request().await.is_some()) }
    })
    .await;
    let gateway = start(&authority, "", &ECHO.replace("builtin:echo", &format!("'http://{}'", origin.address)));
    for (head, with_close_notify) in [
        ("Content-Length: 10", false),
        ("Content-Length: 10", true),
        ("Transfer-Encoding: chunked", false),
        ("Transfer-Encoding: chunked", true),
    ] {
        let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n")).await;
        client.send(if head.starts_with('C') { "5bytes" } else { "5\r\nbytes\r\n" }).await;
        match with_close_notify {
            true => client.stream.shutdown().await.unwrap(),
            false => client.stream.get_mut().0.shutdown().await.unwrap(),
        }
        assert_eq!(soon(is_complete.recv()).await, Some(false), "{head} {with_close_notify}");
    }
}

#[tokio::test]
async fn idle_connection_ends_with_close_notify() {
    let authority = authority();
    let gateway = start(&authority, "idle_timeout: 200ms, ", ECHO);
    let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    client.closed().await.expect("an end with close_notify");
}

/// The connections: idle with HTTP/1, with HTTP/2, and directly after the handshake.
#[tokio::test]
async fn drain_ends_connections_with_close_notify() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let client = TlsClient::new(&authority);
    let mut idle = client.connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut idle, "/", "").await.status(), 200);
    let mut unused = client.connect(gateway.address).await.unwrap();
    let http2 = TlsClient { protocols: &["h2"], ..TlsClient::new(&authority) };
    let (mut send, connection) =
        h2::client::handshake(http2.connect(gateway.address).await.unwrap().stream).await.unwrap();
    let http2_end = tokio::spawn(connection);
    let request = http::Request::get("https://api.example/").body(()).unwrap();
    assert_eq!(soon(send.send_request(request, true).unwrap().0).await.unwrap().status(), 200);
    let draining = tokio::task::spawn_blocking(move || gateway.drain(Duration::from_secs(5)));
    idle.closed().await.expect("an end with close_notify");
    unused.closed().await.expect("an end with close_notify");
    // The client may still write after the gateway has closed the connection, which fails with a broken pipe.
    let http2_end = soon(http2_end).await.unwrap();
    let is_late = |error: &h2::Error| error.get_io().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    assert!(http2_end.as_ref().err().is_none_or(is_late), "{http2_end:?}");
    draining.await.unwrap();
}

#[tokio::test]
async fn handshake_during_a_drain_is_completed() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let address = gateway.address;
    let started = gateway.client().await;
    let mut hello = rustls::ClientConnection::new(
        TlsClient::new(&authority).config(),
        ServerName::try_from("api.example").unwrap(),
    )
    .unwrap();
    let mut stream = started.stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut first = Vec::new();
    hello.write_tls(&mut first).unwrap();
    io::Write::write_all(&mut stream, &first[..9]).unwrap();
    let response = tokio::task::spawn_blocking(move || {
        let draining = std::thread::spawn(move || gateway.drain(Duration::from_secs(5)));
        // When the port is closed, the drain has begun.
        while std::net::TcpStream::connect(address).is_ok() {}
        io::Write::write_all(&mut stream, &first[9..]).unwrap();
        let mut tls = rustls::Stream::new(&mut hello, &mut stream);
        io::Write::write_all(&mut tls, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        io::Read::read_to_string(&mut tls, &mut response).unwrap();
        draining.join().unwrap();
        response
    });
    let response = soon(response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}
