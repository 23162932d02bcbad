//! Tests of the server on real sockets.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

mod caps;
mod eviction;
mod first_bytes;
mod idle;
mod panics;
mod slow;

use super::*;
use crate::wire::raw::Raw;
use crate::wire::{soon, until};
use tidegate_config::ListenAddress;

const LONG: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    trigger: DrainTrigger,
    serving: JoinHandle<io::Result<()>>,
}

fn listen() -> Listen {
    let address = ListenAddress::parse("127.0.0.1:0").unwrap();
    Listen { max_connections: 100, header_timeout: LONG, idle_timeout: LONG, ..Listen::new(address) }
}

fn start<H: testing::Handler>(listen: &Listen, handler: H) -> Running {
    start_with_connections(&gateway_connections(usize::MAX, AddressRules::default()), listen, handler)
}

fn gateway_connections(max: usize, addresses: AddressRules) -> GatewayConnections {
    GatewayConnections::new(max, addresses, Arc::new(Metrics::of_gateway(&[])))
}

fn start_with_connections<H: testing::Handler>(
    connections: &GatewayConnections,
    listen: &Listen,
    handler: H,
) -> Running {
    let metrics = connections.metrics().clone();
    let (trigger, drain) = Drain::new();
    let listener = bind_one(&listen.address);
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(
        Server::with_connections(connections, listen, None, drain, |_| {})
            .serve(listener, testing::HandlerService(handler)),
    );
    Running { address, metrics, trigger, serving }
}

/// Reads the whole body, and responds with the method and the target.
async fn describe(request: Request<RequestBody>, _: SocketAddr) -> Response<Full<Bytes>> {
    let text = format!("{} {}", request.method(), request.uri());
    _ = request.into_body().collect().await;
    Response::new(Full::from(text))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[tokio::test]
async fn responses_have_a_date_and_no_server_field() {
    let server = start(&listen(), describe);
    let response = Raw::connect(server.address).await.ask(get("/a")).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "GET /a"));
    assert!(response.field("date").is_some());
    assert_eq!(response.field("server"), None);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(&listen(), describe);
    let mut client = Raw::connect(server.address).await;
    client.send([get("/1"), get("/2"), get("/3")].concat()).await;
    for path in ["/1", "/2", "/3"] {
        assert_eq!(client.response(false).await.text(), format!("GET {path}"));
    }
}

#[tokio::test]
async fn oversized_head_gets_the_status_of_its_large_part() {
    let server = start(&listen(), describe);
    let path = |length: usize| get(&format!("/{}", "a".repeat(length - 1)));
    let fields = |count: usize, value: &str| {
        let fields: String = (0..count).map(|index| format!("x-{index:03}: {value}\r\n")).collect();
        format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    };
    for (request, status) in [
        (path(8 * 1024), 200),
        (path(8 * 1024 + 1), 414),
        (path(20 * 1024), 414),
        (fields(99, "v"), 200),
        (fields(100, "v"), 431),
        (fields(15, &"v".repeat(1000)), 200),
        (fields(17, &"v".repeat(1000)), 431),
        (fields(1, &"v".repeat(100_000)), 431),
    ] {
        let response = Raw::connect(server.address).await.ask(&request).await;
        assert_eq!(response.status(), status, "{} bytes: {}", request.len(), response.text());
    }
}

#[tokio::test]
async fn header_timeout_closes_silent_clients_and_half_heads() {
    let server = start(&Listen { header_timeout: Duration::from_millis(60), ..listen() }, describe);
    for start in ["", "P", "PR", "GET / HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = Raw::connect(server.address).await;
        client.send(start).await;
        let rest = client.rest().await.unwrap();
        assert!(rest.is_empty() || start.starts_with("PRI "), "{start}");
    }
}

#[tokio::test]
async fn header_timeout_closes_a_trickling_second_head() {
    let server = start(&Listen { header_timeout: Duration::from_millis(80), ..listen() }, describe);
    let mut client = Raw::connect(server.address).await;
    client.ask(get("/")).await;
    let trickling = async {
        loop {
            if client.stream.try_write(b"G").is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(trickling).await;
}

#[tokio::test]
async fn idle_timeout_does_not_end_a_running_request() {
    let settings = Listen { header_timeout: LONG, idle_timeout: Duration::from_millis(60), ..listen() };
    let release = Arc::new(Notify::new());
    let gate = release.clone();
    let server = start(&settings, move |request: Request<RequestBody>, peer| {
        let gate = gate.clone();
        async move {
            if request.uri().path() == "/slow" {
                gate.notified().await;
            }
            describe(request, peer).await
        }
    });
    let mut slow = Raw::connect(server.address).await;
    slow.send(get("/slow")).await;
    let mut idle = Raw::connect(server.address).await;
    idle.ask(get("/")).await;
    idle.closed().await.unwrap();
    // The idle time of another connection passes, so the slow request takes longer than any idle time.
    let mut idle = Raw::connect(server.address).await;
    idle.ask(get("/")).await;
    idle.closed().await.unwrap();
    release.notify_one();
    assert_eq!(slow.response(false).await.text(), "GET /slow");
    slow.closed().await.unwrap();
}

#[tokio::test]
async fn idle_timeout_closes_an_http2_connection() {
    let settings = Listen { idle_timeout: Duration::from_millis(60), ..listen() };
    let server = start(&settings, describe);
    let (mut sender, connection) = http2(server.address).await;
    let response = soon(sender.send_request(empty("http://a/x"))).await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "GET http://a/x");
    soon(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn oversized_http2_head_is_rejected() {
    let server = start(&listen(), describe);
    let (mut sender, _connection) = http2(server.address).await;
    let fields = |count: usize, length: usize| {
        let mut request = empty("http://a/");
        let value = http::HeaderValue::from_str(&"v".repeat(length)).unwrap();
        for index in 0..count {
            request.headers_mut().insert(http::HeaderName::try_from(format!("x-{index}")).unwrap(), value.clone());
        }
        request
    };
    for (request, status) in [
        (fields(100, 1), 200),
        (fields(101, 1), 431),
        (fields(17, 1000), 431),
        (empty(&format!("http://a/{}", "a".repeat(8 * 1024))), 414),
    ] {
        assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), status);
    }
}

#[tokio::test]
async fn drain_finishes_http2_streams() {
    let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (signal, gate) = (began.clone(), release.clone());
    let server = start(&listen(), move |request, peer| {
        let (signal, gate) = (signal.clone(), gate.clone());
        async move {
            signal.notify_one();
            gate.notified().await;
            describe(request, peer).await
        }
    });
    let (mut sender, connection) = http2(server.address).await;
    let response = tokio::spawn(sender.send_request(empty("http://a/slow")));
    soon(began.notified()).await;
    server.trigger.start(LONG);
    release.notify_one();
    let response = soon(response).await.unwrap().unwrap();
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "GET http://a/slow");
    soon(connection).await.unwrap().unwrap();
    soon(server.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn connection_above_the_cap_gets_503() {
    let server = start(&Listen { max_connections: 1, ..listen() }, describe);
    let mut first = Raw::connect(server.address).await;
    first.ask(get("/")).await;
    let mut second = Raw::connect(server.address).await;
    let local_response = second.response(false).await;
    assert_eq!((local_response.status(), local_response.field("connection").as_deref()), (503, Some("close")));
    assert_eq!(local_response.field("content-type").as_deref(), Some("application/problem+json"));
    second.closed().await.unwrap();
    assert_eq!(first.ask(get("/")).await.status(), 200);
    assert!(server.metrics.render().contains("tidegate_connections_refused_total 1"));
    assert!(server.metrics.render().contains("tidegate_connections_by_protocol{protocol=\"http1\"} 1\n"));
    drop(first);
    until(|| server.metrics.render().contains("tidegate_connections 0")).await;
    until(|| server.metrics.render().contains("tidegate_connections_by_protocol{protocol=\"http1\"} 0\n")).await;
    assert_eq!(Raw::connect(server.address).await.ask(get("/")).await.status(), 200);
}

#[tokio::test]
async fn drain_finishes_requests_and_closes_idle_connections() {
    let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (signal, gate) = (began.clone(), release.clone());
    let server = start(&listen(), move |request: Request<RequestBody>, peer| {
        let (signal, gate) = (signal.clone(), gate.clone());
        async move {
            if request.uri().path() == "/slow" {
                signal.notify_one();
                gate.notified().await;
            }
            describe(request, peer).await
        }
    });
    let mut idle = Raw::connect(server.address).await;
    idle.ask(get("/")).await;
    let mut running = Raw::connect(server.address).await;
    running.send(get("/slow")).await;
    soon(began.notified()).await;
    server.trigger.start(LONG);
    idle.closed().await.unwrap();
    assert!(!server.serving.is_finished());
    release.notify_one();
    let response = running.response(false).await;
    assert_eq!((response.text().as_str(), response.field("connection").as_deref()), ("GET /slow", Some("close")));
    soon(server.serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn drain_ends_at_its_deadline() {
    let server = start(&listen(), |_, _| std::future::pending::<Response<Full<Bytes>>>());
    let mut stuck = Raw::connect(server.address).await;
    stuck.send(get("/")).await;
    until(|| server.metrics.render().contains("tidegate_connections 1")).await;
    server.trigger.start(Duration::from_millis(50));
    soon(server.serving).await.unwrap().unwrap();
    assert!(stuck.head().await.is_err());
}

#[tokio::test]
async fn drain_serves_a_request_sent_while_it_begins() {
    let server = start(&listen(), describe);
    let mut late = Raw::connect(server.address).await;
    late.send(get("/late")).await;
    server.trigger.start(LONG);
    assert_eq!(late.response(false).await.text(), "GET /late");
    soon(server.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn drain_serves_one_more_request_of_an_active_client() {
    let server = start(&listen(), describe);
    let mut client = Raw::connect(server.address).await;
    assert_eq!(client.ask(get("/")).await.field("connection"), None);
    server.trigger.start(LONG);
    soon(async { while TcpStream::connect(server.address).await.is_ok() {} }).await;
    let last = client.ask(get("/last")).await;
    assert_eq!((last.text().as_str(), last.field("connection").as_deref()), ("GET /last", Some("close")));
    client.closed().await.unwrap();
    soon(server.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn panic_ends_only_its_own_connection() {
    let server = start(&listen(), |request: Request<RequestBody>, peer| async move {
        if request.uri().path() == "/panic" {
            // This panic prints no backtrace: its symbols would occupy memory that other tests measure.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        describe(request, peer).await
    });
    let mut other = Raw::connect(server.address).await;
    other.ask(get("/")).await;
    let mut unlucky = Raw::connect(server.address).await;
    unlucky.send(get("/panic")).await;
    assert!(unlucky.head().await.is_err());
    assert_eq!(other.ask(get("/")).await.status(), 200);
    until(|| server.metrics.render().contains("tidegate_connections 1")).await;
}

#[tokio::test]
async fn failed_response_body_resets_the_connection() {
    let server = start(&listen(), |_, _| async { Response::new(FailingBody(vec![7; 8 << 10].into())) });
    // HTTP/1.0 responses have no chunks. Without a length, only a reset shows the client that the body is incomplete.
    let mut old = Raw::connect(server.address).await;
    old.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    let error = old.try_message(false, true).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn response_that_fails_before_its_first_byte_is_a_502() {
    for first in ["", "part"] {
        let server = start(&listen(), move |_, _| async move { Response::new(FailingBody(first.into())) });
        let mut client = Raw::connect(server.address).await;
        let statuses = [client.ask(get("/")).await.status(), client.ask(get("/")).await.status()];
        assert_eq!(statuses, [502; 2], "{first}");
    }
}

#[tokio::test]
async fn malformed_requests_get_400() {
    let server = start(&listen(), describe);
    for bad in [
        "GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    ] {
        let mut client = Raw::connect(server.address).await;
        assert_eq!(client.ask(bad).await.status(), 400, "{bad:?}");
        client.closed().await.ok();
    }
}

#[tokio::test]
async fn response_during_an_upload_reaches_the_client() {
    let server = start(&listen(), |_, _| async { Response::new(Full::<Bytes>::from("enough")) });
    for _ in 0..10 {
        let mut client = Raw::connect(server.address).await;
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 8 << 20)).await;
        client.send(vec![7; 4 << 20]).await;
        assert_eq!(client.response(false).await.text(), "enough");
    }
}

/// A body that fails after these bytes.
struct FailingBody(Bytes);

impl Body for FailingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let part = std::mem::take(&mut self.0);
        Poll::Ready(Some(if part.is_empty() { Err(io::Error::other("on purpose")) } else { Ok(Frame::data(part)) }))
    }
}

type H2Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(address: SocketAddr) -> (H2Sender, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn empty(uri: &str) -> Request<Full<Bytes>> {
    Request::get(uri).body(Full::default()).unwrap()
}
