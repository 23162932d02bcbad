//! Tests of the bytes on HTTP/1 connections.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::net::TcpListener;

use super::request::may_contain_end;
use crate::server::testing::{Handler, HandlerService};
use crate::server::{Drain, DrainTrigger, Server, bind_one};
use crate::upstream::RequestBody;
use crate::wire::raw::Raw;
use tidegate_config::{Listen, ListenAddress};
use tidegate_metrics::Metrics;

mod own_body;
mod unread;

struct Running {
    address: SocketAddr,
    _trigger: DrainTrigger,
}

fn start<H: Handler>(handler: H) -> Running {
    let long = Duration::from_secs(60);
    let address = ListenAddress::parse("127.0.0.1:0").unwrap();
    let listen = Listen { header_timeout: long, idle_timeout: long, ..Listen::new(address) };
    let listener = bind_one(&listen.address);
    let address = listener.local_addr().unwrap();
    let (trigger, drain) = Drain::new();
    tokio::spawn(
        Server::new(&listen, Arc::new(Metrics::of_gateway(&[])), drain).serve(listener, HandlerService(handler)),
    );
    Running { address, _trigger: trigger }
}

async fn client<H: Handler>(handler: H) -> (Raw, Running) {
    let running = start(handler);
    (Raw::connect(running.address).await, running)
}

/// Responds with the method, the target and the whole body, or with status 400 if the body fails.
async fn describe<B>(request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body,
{
    let (method, uri) = (request.method().clone(), request.uri().clone());
    match request.into_body().collect().await {
        Ok(body) => Response::new(Full::from(format!("{method} {uri} {:?}", body.to_bytes()))),
        Err(_) => Response::builder().status(400).body(Full::default()).unwrap(),
    }
}

#[test]
fn end_of_a_head_is_found_at_any_split() {
    for text in ["GET / HTTP/1.1\r\na: b\r\n\r\n", "GET / HTTP/1.1\na: b\n\n", "GET / HTTP/1.1\na: b\n\r\n"] {
        assert!((1..text.len()).all(|cut| may_contain_end(text.as_bytes(), cut)), "{text:?}");
        assert!((1..text.len() - 1).all(|cut| !may_contain_end(&text.as_bytes()[..text.len() - 1], cut)), "{text:?}");
    }
    assert!(may_contain_end(b"G", 0) && !may_contain_end(b"", 0));
}

#[tokio::test]
async fn request_after_a_body_is_read_at_any_split() {
    let (mut client, _running) = client(|request, _| describe(request)).await;
    let requests = "POST /1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi\
                    POST /2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                    1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n\r\nGET /3 HTTP/1.1\r\n\r\n";
    for cut in 1..requests.len() {
        client.send(&requests[..cut]).await;
        tokio::task::yield_now().await;
        client.send(&requests[cut..]).await;
        for text in [r#"POST /1 b"hi""#, r#"POST /2 b"abc""#, r#"GET /3 b"""#] {
            assert_eq!(client.response(false).await.text(), text);
        }
    }
}

#[tokio::test]
async fn continue_is_sent_when_the_body_is_read() {
    let (mut client, _running) = client(|request, _| describe(request)).await;
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").await;
        let informational = client.response(false).await;
        assert_eq!((informational.status(), informational.fields.len()), (100, 0));
        client.send("hi").await;
        assert_eq!(client.response(false).await.text(), r#"POST / b"hi""#);
    }
}

#[tokio::test]
async fn continue_is_not_sent_for_an_unread_body() {
    let (mut client, _running) = client(|_, _| async { Response::new(Full::<Bytes>::from("no")) }).await;
    let response = client.ask("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").await;
    assert_eq!((response.status(), response.text().as_str()), (200, "no"));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn retained_body_does_not_read_the_next_request() {
    let kept: Arc<Mutex<Option<RequestBody>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let (mut client, _running) = client(move |request: Request<RequestBody>, _| {
        let stale = keep.lock().take();
        let keep = Arc::clone(&keep);
        async move {
            if let Some(stale) = stale {
                assert!(stale.collect().await.is_err());
                return describe(request).await;
            }
            *keep.lock() = Some(request.into_body());
            Response::new(Full::from("kept"))
        }
    })
    .await;
    client.send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiPOST /2 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").await;
    assert_eq!(client.response(false).await.text(), "kept");
    assert_eq!(client.response(false).await.text(), r#"POST /2 b"abc""#);
}

#[tokio::test]
async fn malformed_request_gets_problem_details_and_a_close() {
    let server = start(|request, _| describe(request));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        ("GET / HTTP/3.0\r\n\r\n", 505),
    ] {
        let mut client = Raw::connect(server.address).await;
        let response = client.ask(request).await;
        assert_eq!(
            (response.status(), response.field("connection").as_deref()),
            (status, Some("close")),
            "{request:?}"
        );
        assert_eq!(response.field("content-type").as_deref(), Some("application/problem+json"));
        assert!(serde_json::from_slice::<serde_json::Value>(&response.body).unwrap()["detail"].is_string());
        client.closed().await.unwrap();
    }
}

#[tokio::test]
async fn http_1_0_connection_stays_open_only_on_request() {
    let server = start(|request, _| describe(request));
    let mut client = Raw::connect(server.address).await;
    for _ in 0..2 {
        let response = client.ask("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (200, Some("keep-alive")));
    }
    let response = client.ask("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!((response.start.as_str(), response.field("connection").as_deref()), ("HTTP/1.1 200 OK", Some("close")));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn trailers_need_te_trailers() {
    let server = start(|_, _| async {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("e"))]);
        Response::new(Frames([Frame::data(Bytes::from("body")), Frame::trailers(trailers)].into()))
    });
    let mut client = Raw::connect(server.address).await;
    let with_te = client.ask("GET / HTTP/1.1\r\nTE: trailers\r\n\r\n").await;
    assert_eq!((with_te.text().as_str(), with_te.trailers.len()), ("body", 1));
    let without_te = client.ask("GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!((without_te.text().as_str(), without_te.trailers.len()), ("body", 0));
    assert!(client.ask("HEAD / HTTP/1.1\r\n\r\n").await.body.is_empty());
    assert_eq!(client.ask("GET / HTTP/1.0\r\n\r\n").await.body, b"body");
}

/// A body of these frames.
struct Frames(VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// Starts a hyper server with the same service.
async fn hyper_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request| async { Ok::<_, Infallible>(describe(request).await) });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    address
}

/// Returns the requests that a server recognizes in these bytes: all that it answers with 200, up to the first other
/// response.
async fn recognized_requests(server: SocketAddr, bytes: &[u8]) -> Vec<String> {
    let mut client = Raw::connect(server).await;
    client.send(bytes).await;
    let mut requests = Vec::new();
    while let Ok(response) = client.try_message(false, true).await {
        match response.status() {
            100 => {}
            200 => requests.push(response.text()),
            _ => break,
        }
    }
    requests
}

fn line_end() -> impl Strategy<Value = &'static str> {
    prop_oneof![30 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\r\n")]
}

fn field() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => Just("Content-Length: "), 4 => Just("Transfer-Encoding: "), 2 => Just("Connection: "), 2 => Just("X: "),
        1 => Just("content-length:"), 1 => Just("Content-Length : "), 1 => Just(" "), 1 => Just("Expect: "),
    ];
    let value = prop_oneof![
        6 => (0_u8..20).prop_map(|length| length.to_string()),
        6 => Just("chunked".to_owned()), 1 => Just("Chunked ".into()),
        1 => Just("chunked, chunked".into()), 1 => Just("gzip, chunked".into()), 1 => Just("identity".into()),
        2 => Just("keep-alive".into()), 1 => Just("close".into()), 1 => Just("+1".into()), 1 => Just("0x1".into()),
        1 => Just("\tx\u{b}".into()), 1 => Just("100-continue".into()), 1 => Just(String::new()),
    ];
    (name, value, line_end()).prop_map(|(name, value, end)| [name, &value, end].concat())
}

fn request() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        6 => Just("POST /a HTTP/1.1"), 2 => Just("GET /b?c HTTP/1.1"),
        1 => Just("POST /d HTTP/1.0"), 1 => Just("GET /e  HTTP/1.1"),
    ];
    let body = prop_oneof![
        3 => "[a-z]{0,20}".prop_map(String::from), 6 => chunks(), 1 => Just("\r\n".to_owned()),
    ];
    (line, line_end(), prop::collection::vec(field(), 0..3), line_end(), body)
        .prop_map(|(line, end, fields, last, body)| [line, end, &fields.concat(), last, &body].concat())
}

/// A valid request.
fn valid_request() -> impl Strategy<Value = String> {
    ("[a-z]{1,20}", any::<bool>()).prop_map(|(body, chunked)| match chunked {
        true => {
            format!("POST /f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
        }
        false => format!("POST /g HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
    })
}

fn chunks() -> impl Strategy<Value = String> {
    let size = prop_oneof![
        8 => Just(None),
        1 => Just(Some("0")), 1 => Just(Some("+1")), 1 => Just(Some("")), 1 => Just(Some("0x2")),
    ];
    let after = prop_oneof![12 => Just(""), 2 => Just(";a=b"), 1 => Just(" "), 1 => Just(" ;\n")];
    let chunk = ("[a-z]{1,20}", size, after, line_end(), line_end());
    let chunk = chunk.prop_map(|(data, size, after, end, last)| {
        let size = size.map_or_else(|| format!("{:x}", data.len()), ToOwned::to_owned);
        [&size, after, end, &data, last].concat()
    });
    let end = prop_oneof![8 => Just("0\r\n\r\n"), 2 => Just("0\r\nx: y\r\n\r\n"), 1 => Just("0\n\n"), 1 => Just("")];
    (prop::collection::vec(chunk, 0..3), end).prop_map(|(chunks, end)| chunks.concat() + end)
}

/// Repeated: even if a body includes some of these requests, one remains and closes the connection.
const END: &str = "GET /end HTTP/1.1\r\nConnection: close\r\n\r\n";

#[test]
fn parsed_requests_match_the_prefix_that_hyper_parses() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ours, theirs) = runtime.block_on(async { (start(|request, _| describe(request)), hyper_server().await) });
    let (compared, rejected) = (Cell::new(0), Cell::new(0));
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() });
    let bytes = prop::collection::vec(prop_oneof![request(), valid_request()], 1..4)
        .prop_map(|requests| requests.concat() + &END.repeat(8));
    runner
        .run(&bytes, |bytes| {
            let (ours, theirs) = runtime.block_on(async {
                (
                    recognized_requests(ours.address, bytes.as_bytes()).await,
                    recognized_requests(theirs, bytes.as_bytes()).await,
                )
            });
            prop_assert!(theirs.starts_with(&ours), "Tidegate parsed {ours:?}, hyper {theirs:?}, in {bytes:?}");
            compared.update(|count| count + ours.len());
            rejected.update(|count| count + usize::from(ours.len() < theirs.len()));
            Ok(())
        })
        .unwrap();
    let (compared, rejected) = (compared.get(), rejected.get());
    assert!(compared > 500, "only {compared} requests were recognized");
    assert!(rejected < 100, "{rejected} of 512 were rejected, but accepted by hyper");
}
