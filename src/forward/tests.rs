//! The way there and back: a server, this service, and origins on real sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::*;
use crate::config::Listen;
use crate::metrics::Metrics;
use crate::server::{Drain, DrainTrigger, Server, bind};
use crate::upstream::settings::{Target, UpstreamSettings};
use crate::wire::raw::{Message, Raw};
use crate::wire::upstream::{Origin, Visit};
use crate::wire::{soon, until};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LONG: Duration = Duration::from_secs(60);

/// A gateway without rules.
struct Gateway {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    _trigger: DrainTrigger,
}

struct Settings {
    targets: Vec<Target>,
    response_timeout: Duration,
    trusted_peer: bool,
}

impl Settings {
    fn to(address: SocketAddr) -> Self {
        Self::targets(vec![target(address)])
    }

    fn targets(targets: Vec<Target>) -> Self {
        Self { targets, response_timeout: LONG, trusted_peer: false }
    }

    fn start(self) -> Gateway {
        let upstream = UpstreamSettings {
            name: "api".into(),
            targets: self.targets,
            connect_timeout: Duration::from_secs(5),
            response_timeout: self.response_timeout,
        };
        let metrics = Arc::new(Metrics::new());
        let forward = Forward::new(Arc::new(Upstreams::new([&upstream], &metrics)));
        let trusted_peer = self.trusted_peer;
        let handler = move |request, peer| with_permit(forward.clone(), request, peer, trusted_peer);
        let listen = Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            max_connections: 100,
            header_timeout: LONG,
            idle_timeout: LONG,
        };
        let listener = bind(listen.address, 1).unwrap().remove(0);
        let address = listener.local_addr().unwrap();
        let (trigger, drain) = Drain::new();
        tokio::spawn(Server::new(&listen, metrics.clone(), drain).serve(listener, handler));
        Gateway { address, metrics, _trigger: trigger }
    }
}

/// What the layer does, with every request allowed. What the layer would learn is shown in a field.
async fn with_permit(
    forward: Forward,
    mut request: Request<Incoming>,
    peer: SocketAddr,
    trusted_peer: bool,
) -> Response<Body> {
    let permit = Permit { route: "r".into(), upstream: Some("api".into()), peer: peer.ip(), trusted_peer };
    request.extensions_mut().insert(permit);
    let mut response = forward.forward(request).await;
    if response.extensions().get::<NotSent>().is_some() {
        response.headers_mut().insert("x-not-sent", HeaderValue::from_static("yes"));
    }
    response
}

fn target(address: SocketAddr) -> Target {
    Target::Http(Authority::try_from(address.to_string()).unwrap())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

impl Gateway {
    async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    async fn ask(&self, request: impl AsRef<[u8]>) -> Message {
        self.client().await.ask(request).await
    }
}

// --- heads ---

#[tokio::test]
async fn a_request_arrives_without_what_was_for_one_connection_and_with_what_tells_of_the_way() {
    let origin =
        Origin::saying("HTTP/1.1 200 Fine\r\nContent-Length: 0\r\nConnection: x-hop\r\nX-Hop: 1\r\nVia: 1.1 o\r\n\r\n")
            .await;
    let gateway = Settings::to(origin.address).start();
    let request = "GET /a/./b?q=1 HTTP/1.1\r\nHost: api.example\r\nConnection: x-hop, host, keep-alive\r\nX-Hop: 1\r\n\
                   Keep-Alive: 5\r\nProxy-Connection: x\r\nTE: gzip, trailers\r\nUpgrade: websocket\r\n\
                   X-Forwarded-For: 192.0.2.1\r\nX-End: 1\r\n\r\n";
    let answer = gateway.ask(request).await;
    let sent = origin.last();
    assert_eq!(sent.start, "GET /a/b?q=1 HTTP/1.1");
    for (name, value) in [
        ("host", Some("api.example")),
        ("connection", Some("te")),
        ("te", Some("trailers")),
        ("x-hop", None),
        ("keep-alive", None),
        ("proxy-connection", None),
        ("upgrade", None),
        ("transfer-encoding", None),
        ("content-length", None),
        ("x-end", Some("1")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-host", Some("api.example")),
        ("x-forwarded-proto", Some("http")),
        ("via", Some("1.1 tidegate")),
    ] {
        assert_eq!(sent.field(name).as_deref(), value, "{name}");
    }
    assert_eq!(answer.start, "HTTP/1.1 200 Fine");
    assert_eq!(answer.field("x-hop"), None);
    assert_eq!(answer.field("via").as_deref(), Some("1.1 o | 1.1 tidegate"));
}

#[tokio::test]
async fn a_trusted_peer_continues_the_chain() {
    let origin = Origin::saying(OK).await;
    let gateway = Settings { trusted_peer: true, ..Settings::to(origin.address) }.start();
    gateway.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n").await;
    assert_eq!(origin.last().field("x-forwarded-for").as_deref(), Some("192.0.2.1, 127.0.0.1"));
    assert_eq!(origin.last().field("x-forwarded-proto").as_deref(), Some("https"));
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_arrives_in_one_or_not_at_all() {
    let origin = Origin::saying(OK).await;
    let gateway = Settings::to(origin.address).start();
    let chunk = "1\r\nx\r\n0\r\n\r\n";
    for (head, status) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST http://b/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST /..%2f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ] {
        let before = origin.requests().len();
        let answer = gateway.ask(format!("{head}{chunk}")).await;
        assert_eq!(answer.status(), status, "{head:?}: {}", answer.text());
        assert_eq!(origin.requests().len() - before, usize::from(status == 200), "{head:?}");
        if status == 200 {
            let sent = origin.last();
            assert_eq!(sent.body, b"x", "{head:?}");
            assert_eq!((sent.field("content-length"), sent.field("transfer-encoding")), (None, Some("chunked".into())));
            let host = if head.contains("//b/") { "b" } else { "a" };
            assert_eq!(sent.field("host").as_deref(), Some(host));
            assert!(sent.start.starts_with("POST /") || sent.start.starts_with("GET /"), "{}", sent.start);
        }
    }
}

#[tokio::test]
async fn methods_for_the_gateway_itself_do_not_reach_the_origin() {
    let origin = Origin::saying(OK).await;
    let gateway = Settings::to(origin.address).start();
    for (head, status) in [
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 204),
        ("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n", 204),
    ] {
        assert_eq!(gateway.ask(head).await.status(), status, "{head}");
    }
    assert!(origin.requests().is_empty());
    gateway.ask("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 5\r\n\r\n").await;
    assert_eq!(origin.last().field("max-forwards").as_deref(), Some("4"));
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_in_step() {
    let origin = Origin::start(|mut visit: Visit| async move {
        while let Some(request) = visit.request().await {
            visit
                .raw
                .send(match request.start.split(' ').nth(1).unwrap() {
                    "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                    "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                    "/103" => {
                        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                    }
                    _ => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                })
                .await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    assert_eq!(client.ask(get("/204")).await.status(), 204);
    assert_eq!(client.ask(get("/304")).await.status(), 304);
    let head = client.ask("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((head.status(), head.field("content-length").as_deref()), (200, Some("9")));
    let hinted = client.ask(get("/103")).await;
    assert_eq!((hinted.status(), hinted.text().as_str()), (200, "ok"));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn answers_that_could_be_read_in_two_ways_are_refused() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "no http\r\n\r\n",
    ] {
        let origin = Origin::saying(answer).await;
        let gateway = Settings::to(origin.address).start();
        let refusal = gateway.ask(get("/")).await;
        assert_eq!((refusal.status(), refusal.field("x-not-sent")), (502, None), "{answer:?}");
        assert_eq!(origin.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_origin_of_http_1_0_is_understood() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send("HTTP/1.0 200 OK\r\n\r\nuntil the end").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for _ in 0..2 {
        let answer = client.ask(get("/")).await;
        assert_eq!((answer.start.as_str(), answer.text().as_str()), ("HTTP/1.1 200 OK", "until the end"));
        assert_eq!(answer.field("via").as_deref(), Some("1.0 tidegate"));
    }
    assert_eq!(origin.connections(), 2);
}

// --- HTTP/2 ---

type H2Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;
type H2Sender = hyper::client::conn::http2::SendRequest<H2Body>;

async fn http2(address: SocketAddr) -> H2Sender {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn a_request_of_http2_reaches_an_origin_of_http1_with_its_trailers() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, content-length\r\n\r\n").await;
        visit.raw.send("2\r\nok\r\n0\r\nx-sum: 7\r\ncontent-length: 9\r\n\r\n").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let frames = [
        Frame::data(Bytes::from("body")),
        Frame::trailers(
            [("x-sent", "1"), ("host", "evil")]
                .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)))
                .into_iter()
                .collect(),
        ),
    ];
    let body = H2Body::new(Frames(frames.into()));
    let request = Request::post("http://api.example/a").header("cookie", "a=1").header("cookie", "b=2");
    let request = request.header("trailer", "x-sent, host").header("te", "trailers").body(body).unwrap();
    let answer = soon(http2(gateway.address).await.send_request(request)).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    let body = soon(answer.into_body().collect()).await.unwrap();
    let trailers = body.trailers().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &HeaderValue::from_static("7")));
    assert_eq!(body.to_bytes(), "ok");
    let sent = origin.last();
    assert_eq!(sent.start, "POST /a HTTP/1.1");
    assert_eq!(
        (sent.field("host").as_deref(), sent.field("cookie").as_deref()),
        (Some("api.example"), Some("a=1; b=2"))
    );
    assert_eq!((sent.text().as_str(), sent.field("via").as_deref()), ("body", Some("2 tidegate")));
    assert_eq!(sent.trailers, [("x-sent".to_owned(), "1".to_owned())]);
}

#[tokio::test]
async fn a_stream_of_http2_is_reset_when_its_origin_dies_and_the_others_go_on() {
    let origin = Origin::start(|mut visit: Visit| async move {
        if visit.request().await.unwrap().start.contains("/dies") {
            visit.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart").await;
        } else {
            visit.raw.send(OK).await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let request = |uri| Request::get(uri).body(H2Body::new(Full::default())).unwrap();
    let answer = soon(sender.send_request(request("http://a/dies"))).await.unwrap();
    assert!(soon(answer.into_body().collect()).await.is_err());
    let answer = soon(sender.send_request(request("http://a/"))).await.unwrap();
    assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "ok");
}

/// A body of these frames.
struct Frames(VecDeque<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

// --- bodies ---

#[tokio::test]
async fn trailers_pass_in_both_directions_without_those_that_frame() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n").await;
        visit.raw.send("2\r\nok\r\n0\r\nX-Sum: 7\r\nTransfer-Encoding: x\r\n\r\n").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let answer = gateway
        .ask(
            "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Sent, Host\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\nX-Sent: 1\r\nHost: evil\r\n\r\n",
        )
        .await;
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(origin.last().trailers, [("x-sent".to_owned(), "1".to_owned())]);
}

#[tokio::test]
async fn a_body_is_passed_on_as_it_comes() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.head().await;
        visit.raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        loop {
            let chunk = visit.raw.chunk().await.unwrap();
            visit.raw.send(format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(&chunk))).await;
            if chunk.is_empty() {
                return;
            }
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.head().await.unwrap();
    for part in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{part}\r\n", part.len())).await;
        assert_eq!(client.chunk().await.unwrap(), part.as_bytes());
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.chunk().await.unwrap(), b"");
}

const LARGE: usize = 256 << 20;

/// Sends back what it is sent, by the megabyte, in a thread of its own so that its speed is not ours.
async fn mirror(mut visit: Visit) {
    visit.raw.head().await.unwrap();
    visit.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")).await;
    let (mut reader, mut writer) = visit.raw.stream.split();
    tokio::io::copy(&mut (&mut reader).take(LARGE as u64), &mut writer).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_stream_in_both_directions_at_once_in_little_memory() {
    let origin = Origin::start(mirror).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n")).await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    let before = resident();
    let (mut reader, mut writer) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        let part = vec![7; 1 << 20];
        for _ in 0..LARGE / part.len() {
            writer.write_all(&part).await.unwrap();
        }
        writer
    });
    let (mut buffer, mut read, mut most) = (vec![0; 1 << 20], 0, 0);
    while read < LARGE {
        let count = reader.read(&mut buffer).await.unwrap();
        assert!(count > 0 && buffer[..count].iter().all(|byte| *byte == 7));
        read += count;
        most = most.max(resident());
    }
    sending.await.unwrap();
    assert!(most < before + (48 << 20), "{before} bytes grew to {most}");
}

/// Bytes of memory that this process occupies.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_its_origin_back() {
    let (stalled, mut result) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut visit: Visit| {
        let stalled = stalled.clone();
        async move {
            visit.request().await;
            visit.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")).await;
            let part = vec![7; 1 << 16];
            let mut sent = 0;
            // The way is full for good when it has taken nothing for a while.
            let patience = Duration::from_millis(300);
            while let Ok(Ok(count)) = tokio::time::timeout(patience, visit.raw.stream.write(&part)).await {
                sent += count;
            }
            stalled.send(sent).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    client.head().await.unwrap();
    let sent = soon(result.recv()).await.unwrap();
    assert!(sent < LARGE / 4, "{sent} bytes went somewhere");
    // What the origin could not send never comes, and the client is told.
    assert!(client.exactly(LARGE).await.is_err());
}

// --- Expect ---

#[tokio::test]
async fn a_body_is_asked_for_by_the_origin_before_the_client_sends_it() {
    let origin = Origin::start(|mut visit: Visit| async move {
        let head = visit.head().await.unwrap();
        assert_eq!(head.field("expect").as_deref(), Some("100-continue"));
        // Nothing but the head has come, and nothing will until it is asked for.
        let early = tokio::time::timeout(Duration::from_millis(100), visit.raw.exactly(1)).await;
        assert!(early.is_err());
        visit.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(visit.raw.exactly(4).await.unwrap(), b"body");
        visit.raw.send(OK).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.answer(false).await.status(), 100);
    client.send("body").await;
    assert_eq!(client.answer(false).await.status(), 200);
}

#[tokio::test]
async fn an_origin_that_refuses_a_body_is_not_sent_it() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.head().await;
        visit.raw.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        visit.raw.closed().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!((answer.status(), answer.text().as_str()), (413, "big"));
    client.closed().await.unwrap();
}

// --- connections ---

#[tokio::test]
async fn connections_are_used_again() {
    let origin = Origin::saying(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for _ in 0..10 {
        client.ask(get("/")).await;
    }
    gateway.ask(get("/")).await;
    assert_eq!((origin.connections(), origin.requests().len()), (1, 11));
    assert!(
        gateway.metrics.render().contains(r#"tidegate_upstream_requests_total{upstream="api",outcome="answered"} 11"#)
    );
}

#[tokio::test]
async fn a_request_that_meets_a_closed_connection_goes_out_once_on_a_new_one() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send(OK).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for _ in 0..20 {
        let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(client.ask(request).await.status(), 200);
    }
    assert_eq!((origin.connections(), origin.requests().len()), (20, 20));
}

#[tokio::test]
async fn a_request_that_was_sent_is_never_sent_again() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send(OK).await;
        visit.request().await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    assert_eq!(client.ask(get("/")).await.status(), 200);
    let answer = client.ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
    assert_eq!((origin.connections(), origin.requests().len()), (1, 2));
}

#[tokio::test]
async fn an_answer_that_was_not_read_to_its_end_does_not_leave_its_connection_to_another() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart").await;
        visit.raw.closed().await.ok();
        visit.raw.send("never").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    for _ in 0..2 {
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        client.head().await.unwrap();
        assert_eq!(client.exactly(4).await.unwrap(), b"part");
    }
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn no_connection_is_an_answer_of_its_own_and_nothing_was_sent() {
    let gateway = Settings::to(Origin::absent().await).start();
    let answer = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!((answer.status(), answer.field("x-not-sent").as_deref()), (502, Some("yes")));
    assert!(gateway.metrics.render().contains(r#"outcome="unreachable"} 1"#));
}

#[tokio::test]
async fn a_target_that_is_down_leaves_its_turn_to_the_next() {
    let (one, two) = (Origin::saying(OK).await, Origin::saying(OK).await);
    let targets = vec![target(one.address), target(Origin::absent().await), target(two.address)];
    let gateway = Settings::targets(targets).start();
    for _ in 0..6 {
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
    }
    assert_eq!((one.requests().len(), two.requests().len()), (2, 4));
}

// --- failures on the way ---

#[tokio::test]
async fn an_origin_that_is_slow_to_answer_is_given_up_and_its_request_cancelled() {
    let gone = Arc::new(Notify::new());
    let signal = gone.clone();
    let origin = Origin::start(move |mut visit: Visit| {
        let signal = signal.clone();
        async move {
            visit.request().await;
            visit.raw.closed().await.ok();
            signal.notify_one();
        }
    })
    .await;
    let gateway = Settings { response_timeout: Duration::from_millis(50), ..Settings::to(origin.address) }.start();
    let answer = gateway.ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (504, None));
    soon(gone.notified()).await;
}

#[tokio::test]
async fn a_slow_upload_is_not_taken_for_a_slow_origin() {
    let origin = Origin::saying(OK).await;
    let gateway = Settings { response_timeout: Duration::from_millis(150), ..Settings::to(origin.address) }.start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n").await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.send("x").await;
    }
    assert_eq!(client.answer(false).await.status(), 200);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nx").await;
    assert_eq!(client.answer(false).await.status(), 408);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_with_it() {
    let gone = Arc::new(Notify::new());
    let signal = gone.clone();
    let origin = Origin::start(move |mut visit: Visit| {
        let signal = signal.clone();
        async move {
            visit.request().await;
            visit.raw.closed().await.ok();
            signal.notify_one();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    until(|| !origin.requests().is_empty()).await;
    drop(client);
    soon(gone.notified()).await;
}

#[tokio::test]
async fn an_origin_that_dies_in_the_middle_of_an_answer_breaks_it_off_for_every_client() {
    for (answer, version) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", "1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "1.0"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nparx", "1.0"),
    ] {
        let origin = Origin::start(move |mut visit: Visit| async move {
            visit.request().await;
            visit.raw.send(answer).await;
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n")).await;
        assert!(client.try_message(false, true).await.is_err(), "{answer:?} {version}");
    }
}

#[tokio::test]
async fn an_origin_that_dies_in_the_middle_of_a_request_is_a_bad_gateway() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.head().await;
        visit.raw.exactly(4).await.unwrap();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart").await;
    let answer = client.answer(false).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
}

#[tokio::test]
async fn a_body_that_is_none_is_the_clients_mistake() {
    let origin = Origin::saying(OK).await;
    let gateway = Settings::to(origin.address).start();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nno size\r\n";
    assert_eq!(gateway.ask(request).await.status(), 400);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
}

// --- builtin:echo ---

#[tokio::test]
async fn the_echo_sends_a_body_back_and_describes_a_request_without_one() {
    let gateway = Settings::targets(vec![Target::Echo]).start();
    let page = gateway.ask("GET /a?b HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n").await;
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!((&page["method"], &page["path"]), (&"GET".into(), &"/a?b".into()));
    assert_eq!((&page["headers"]["host"], &page["headers"]["authorization"]), (&"a".into(), &"***".into()));
    let echo = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!((echo.text().as_str(), echo.field("content-type").as_deref()), ("hi", Some("text/x")));
}

#[tokio::test]
async fn a_request_without_a_permit_is_not_forwarded() {
    let origin = Origin::saying(OK).await;
    let forward = Forward::new(Arc::new(Upstreams::new([], &Metrics::new())));
    let listen = Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        max_connections: 1,
        header_timeout: LONG,
        idle_timeout: LONG,
    };
    let listener = bind(listen.address, 1).unwrap().remove(0);
    let address = listener.local_addr().unwrap();
    let (_trigger, drain) = Drain::new();
    let handler = move |request, _| {
        let forward = forward.clone();
        async move { forward.forward(request).await }
    };
    tokio::spawn(Server::new(&listen, Arc::new(Metrics::new()), drain).serve(listener, handler));
    assert_eq!(Raw::connect(address).await.ask(get("/")).await.status(), 500);
    assert!(origin.requests().is_empty());
}
