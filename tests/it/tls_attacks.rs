//! Clients of TLS that are slow, broken or hostile, and ends that come too early.

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
use crate::support::wire::upstream::{Origin, Visit};

const ECHO: &str = "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: all, match: { path: /** }, upstream: echo }]";

fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority
}

fn start(authority: &Authority, of_entry: &str, rules: &str) -> TestGateway {
    let entry = listener(authority, &["api"], "").replace("tls:", &format!("{of_entry}tls:"));
    TestGateway::start_at(&entry, rules)
}

async fn rejected(gateway: &TestGateway, cause: &str) -> u64 {
    gateway.counter(&format!("tidegate_rejected_total{{cause=\"{cause}\"}}")).await
}

/// Writes one byte at a time.
struct Dribbling(TcpStream);

impl AsyncRead for Dribbling {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Dribbling {
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
async fn a_client_may_send_its_greeting_and_its_request_byte_by_byte() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let connector = TlsConnector::from(TlsClient::new(&authority).config());
    let name = ServerName::try_from("api.example").unwrap();
    let stream = soon(connector.connect(name, Dribbling(stream))).await.unwrap();
    assert_eq!(get(&mut Raw::new(stream), "/", "").await.status(), 200);
}

#[tokio::test]
async fn bytes_that_are_no_tls_end_the_connection_and_are_counted() {
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

/// A hello that says it is 16 MB long, and goes on and on.
#[tokio::test]
async fn a_greeting_without_an_end_is_cut_off_early() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let mut client = gateway.client().await;
    client.send([&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff, 3, 3][..], &[7; 16 * 1024 - 6]].concat()).await;
    let record = [&[22, 3, 1, 0x40, 0][..], &[7; 16 * 1024]].concat();
    let mut sent = 0;
    while sent < 4096 && client.stream.write_all(&record).await.is_ok() {
        sent += 1;
    }
    // What is discarded behind the alert counts, too, and what the kernel holds.
    until_rejected(&gateway, "bad_handshake").await;
}

/// Waits until something was rejected for this cause.
async fn until_rejected(gateway: &TestGateway, cause: &str) {
    soon(async { while rejected(gateway, cause).await == 0 {} }).await;
}

#[tokio::test]
async fn clients_that_stop_in_the_middle_of_their_greeting_keep_nobody_waiting() {
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
async fn those_in_the_middle_of_their_greeting_make_room_for_others() {
    let authority = authority();
    let gateway = start(&authority, "max_connections: 4, ", ECHO);
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut client = gateway.client().await;
        client.send([22, 3, 1, 2, 0, 1, 0]).await;
        stuck.push(client);
    }
    // Until they have been silent for long enough, there is no room.
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

/// The origin's answer tells how long the body was that it received whole; one that is cut off it never receives.
#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_not_taken_for_a_whole_one() {
    let authority = authority();
    let (heard, mut whole) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut visit: Visit| {
        let heard = heard.clone();
        async move { _ = heard.send(visit.request().await.is_some()) }
    })
    .await;
    let gateway = start(&authority, "", &ECHO.replace("builtin:echo", &format!("'http://{}'", origin.address)));
    for (head, with_notice) in [
        ("Content-Length: 10", false),
        ("Content-Length: 10", true),
        ("Transfer-Encoding: chunked", false),
        ("Transfer-Encoding: chunked", true),
    ] {
        let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n")).await;
        client.send(if head.starts_with('C') { "5bytes" } else { "5\r\nbytes\r\n" }).await;
        match with_notice {
            true => client.stream.shutdown().await.unwrap(),
            false => client.stream.get_mut().0.shutdown().await.unwrap(),
        }
        assert_eq!(soon(whole.recv()).await, Some(false), "{head} {with_notice}");
    }
}

#[tokio::test]
async fn an_idle_connection_ends_with_a_notice() {
    let authority = authority();
    let gateway = start(&authority, "idle_timeout: 200ms, ", ECHO);
    let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    client.closed().await.expect("an end that is no error");
}

/// One of HTTP/1 that rests, one of HTTP/2, one that has just been greeted.
#[tokio::test]
async fn a_drain_ends_connections_with_a_notice() {
    let authority = authority();
    let gateway = start(&authority, "", ECHO);
    let client = TlsClient::new(&authority);
    let mut resting = client.connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut resting, "/", "").await.status(), 200);
    let mut greeted = client.connect(gateway.address).await.unwrap();
    let http2 = TlsClient { protocols: &["h2"], ..TlsClient::new(&authority) };
    let (mut send, connection) =
        h2::client::handshake(http2.connect(gateway.address).await.unwrap().stream).await.unwrap();
    let over = tokio::spawn(connection);
    let request = http::Request::get("https://api.example/").body(()).unwrap();
    assert_eq!(soon(send.send_request(request, true).unwrap().0).await.unwrap().status(), 200);
    let draining = tokio::task::spawn_blocking(move || gateway.drain(Duration::from_secs(5)));
    resting.closed().await.expect("an end that is no error");
    greeted.closed().await.expect("an end that is no error");
    // One that was still writing finds that nobody reads any more, and that is no end of what it was sent.
    let over = soon(over).await.unwrap();
    let is_late = |error: &h2::Error| error.get_io().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    assert!(over.as_ref().err().is_none_or(is_late), "{over:?}");
    draining.await.unwrap();
}

#[tokio::test]
async fn who_is_in_the_middle_of_a_greeting_when_a_drain_begins_is_served() {
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
    let answer = tokio::task::spawn_blocking(move || {
        let draining = std::thread::spawn(move || gateway.drain(Duration::from_secs(5)));
        // Nobody listens any more: it has begun.
        while std::net::TcpStream::connect(address).is_ok() {}
        io::Write::write_all(&mut stream, &first[9..]).unwrap();
        let mut tls = rustls::Stream::new(&mut hello, &mut stream);
        io::Write::write_all(&mut tls, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        io::Read::read_to_string(&mut tls, &mut answer).unwrap();
        draining.join().unwrap();
        answer
    });
    let answer = soon(answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
