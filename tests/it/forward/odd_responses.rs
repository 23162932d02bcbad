//! Upstreams with malformed, incomplete or endless responses. The client gets a 502, or a response that breaks off. It
//! never gets a part of a body as if it were complete. Other requests are not affected.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::http2_client::{H2Body, H2Sender, http2};
use super::*;
use crate::support::wire::frames::{
    CANCEL, DATA, END_HEADERS, END_STREAM, Frame, Frames, GOAWAY, HEADERS, NO_ERROR, RST_STREAM, fields,
};

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Whole(String),
    BadGateway,
    BrokenOff,
}

/// A client of the gateway.
enum Client {
    Http1(Raw),
    Http2(H2Sender),
}

/// The events of one case.
#[derive(Clone, Default)]
struct Events {
    /// The number of requests that the upstream has received.
    received: Arc<AtomicUsize>,
    /// The client has received the head of the odd response.
    head_arrived: Arc<Notify>,
    /// The upstream may respond to the request in flight.
    release: Arc<Notify>,
}

/// The end of a response over HTTP/1.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Reset,
    /// The connection stays open.
    Open,
    /// These bytes; then the connection stays open.
    Then(&'static str),
    /// These bytes again and again.
    Endless(&'static str),
}

impl Client {
    async fn connect(gateway: &Gateway, is_http2: bool) -> Self {
        if is_http2 { Self::Http2(http2(gateway.address).await) } else { Self::Http1(gateway.client().await) }
    }

    async fn ask(&mut self, path: &str, events: &Events) -> Outcome {
        let (status, body) = match self {
            Self::Http1(client) => {
                client.send(get(path)).await;
                let mut message = client.head().await.unwrap();
                while message.status() < 200 {
                    message = client.head().await.unwrap();
                }
                events.head_arrived.notify_one();
                (message.status(), client.body(&mut message, false, true).await.ok().map(|()| message.text()))
            }
            Self::Http2(sender) => {
                let request = Request::get(format!("http://a{path}")).body(H2Body::new(Full::default())).unwrap();
                // A reset can overtake the head.
                let Ok(response) = soon(sender.send_request(request)).await else { return Outcome::BrokenOff };
                events.head_arrived.notify_one();
                let status = response.status().as_u16();
                let body = soon(response.into_body().collect()).await;
                (status, body.ok().map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()))
            }
        };
        match (status, body) {
            (502, Some(_)) => Outcome::BadGateway,
            (200, Some(body)) => Outcome::Whole(body),
            (200, None) => Outcome::BrokenOff,
            other => panic!("{other:?}"),
        }
    }
}

/// Sends four requests: one that stays in flight, a normal one, the odd one, and another normal one. If
/// `ends_connection`, the odd response also ends the connection of the request in flight.
async fn check(gateway: &Gateway, is_http2: bool, events: &Events, ends_connection: bool) -> Outcome {
    let mut other = Client::connect(gateway, is_http2).await;
    let quiet = Events::default();
    let in_flight = tokio::spawn(async move { other.ask("/held", &quiet).await });
    until(|| events.received.load(Ordering::SeqCst) == 1).await;

    let (whole, quiet) = (Outcome::Whole("ok".to_owned()), Events::default());
    let mut client = Client::connect(gateway, is_http2).await;
    assert_eq!(client.ask("/", &quiet).await, whole);
    let outcome = client.ask("/odd", events).await;
    if !is_http2 && outcome == Outcome::BrokenOff {
        client = Client::connect(gateway, is_http2).await;
    }
    assert_eq!(client.ask("/", &quiet).await, whole);
    events.release.notify_one();
    let in_flight = in_flight.await.unwrap();
    assert!(in_flight == whole || ends_connection && !matches!(in_flight, Outcome::Whole(_)), "{in_flight:?}");
    outcome
}

// === HTTP/1 ===

/// Serves a connection. The path decides about the response.
async fn serve(mut conn: OriginConnection, first: &str, end: End, waits: bool, events: &Events) {
    while let Some(request) = conn.request().await {
        events.received.fetch_add(1, Ordering::SeqCst);
        if request.start.contains("/odd") {
            return respond_oddly(conn, first, end, waits, events).await;
        }
        if request.start.contains("/held") {
            events.release.notified().await;
        }
        conn.raw.send(OK).await;
    }
}

/// Sends the first part of the odd response, then its end. With `waits`, the end follows once the client has the head.
async fn respond_oddly(mut conn: OriginConnection, first: &str, end: End, waits: bool, events: &Events) {
    conn.raw.send(first).await;
    if waits {
        events.head_arrived.notified().await;
    }
    match end {
        End::Close => {}
        End::Reset => conn.raw.stream.set_zero_linger().unwrap(),
        End::Open => _ = conn.raw.rest().await,
        End::Then(bytes) => {
            conn.raw.send(bytes).await;
            _ = conn.raw.rest().await;
        }
        End::Endless(part) => while soon(conn.raw.stream.write_all(part.repeat(1000).as_bytes())).await.is_ok() {},
    }
}

/// Checks a response over HTTP/1, with an HTTP/1 and an HTTP/2 client.
async fn check_http1(first: &'static str, end: End, outcome: &Outcome) {
    for is_http2 in [false, true] {
        let got = ask_http1(first, end, *outcome == Outcome::BrokenOff, is_http2).await;
        assert_eq!(got, *outcome, "{first:?} {end:?}, HTTP/2 client: {is_http2}");
    }
}

async fn ask_http1(first: &'static str, end: End, waits: bool, is_http2: bool) -> Outcome {
    let events = Events::default();
    let served = events.clone();
    let origin = Origin::start(move |conn| {
        let events = served.clone();
        async move { serve(conn, first, end, waits, &events).await }
    })
    .await;
    check(&Settings::to(origin.address).start(), is_http2, &events, false).await
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn longer_body_than_announced_is_cut() {
    for end in [End::Close, End::Open] {
        for first in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        ] {
            check_http1(first, end, &Outcome::Whole("ok".to_owned())).await;
        }
    }
}

#[tokio::test]
async fn shorter_body_than_announced_is_broken_off() {
    let long: &'static str = format!("{CHUNKED}8000\r\n{}", "x".repeat(0x7000)).leak();
    for first in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\npart",
        CHUNKED,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npa",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n0\r\nx-sum: 1\r\n",
        long,
    ] {
        for end in [End::Close, End::Reset] {
            check_http1(first, end, &Outcome::BrokenOff).await;
        }
    }
    // Without a length, only a reset shows that the body is incomplete.
    check_http1("HTTP/1.1 200 OK\r\n\r\npart", End::Reset, &Outcome::BrokenOff).await;
}

#[tokio::test]
async fn malformed_head_is_a_502() {
    for first in [
        "garbage\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "\0\u{1}\u{2}",
        "ok\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        " HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-a: b\r\n c\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nno field\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-a: b\0\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    ] {
        check_http1(first, End::Open, &Outcome::BadGateway).await;
    }
    // A head that ends early.
    for first in ["H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"] {
        for end in [End::Close, End::Reset] {
            check_http1(first, end, &Outcome::BadGateway).await;
        }
    }
}

#[tokio::test]
async fn malformed_chunks_behind_the_head_are_a_502() {
    for chunks in ["x\r\n", "-1\r\n", "fffffffffffffffff\r\n", "2\r\nok!\r\n0\r\n\r\n", "2\nok\r\n0\r\n\r\n"] {
        check_http1(format!("{CHUNKED}{chunks}").leak(), End::Open, &Outcome::BadGateway).await;
    }
}

/// The chunks are malformed after the client has received the head.
#[tokio::test]
async fn late_malformed_chunks_break_the_response_off() {
    for chunks in ["x\r\n", "2\r\nok!\r\n0\r\n\r\n", "2\r\nok\r\n-1\r\n", "0\r\nno field\r\n\r\n"] {
        check_http1(CHUNKED, End::Then(chunks), &Outcome::BrokenOff).await;
    }
}

#[tokio::test]
async fn endless_response_is_bounded() {
    for first in ["HTTP/1.1 200 ", "HTTP/1.1 200 OK\r\nx-a: ", "HTTP/1.1 200 OK\r\n"] {
        let part = if first.ends_with('\n') { "x-a: b\r\n" } else { "x" };
        check_http1(first, End::Endless(part), &Outcome::BadGateway).await;
    }
    let hint = "HTTP/1.1 103 Early Hints\r\n\r\n";
    check_http1(hint, End::Endless(hint), &Outcome::BadGateway).await;
    // The bounds are longer than the bytes that are read with the head, so the head may have been forwarded.
    for (first, part) in [("1;x=", "y"), ("0\r\n", "x-a: b\r\n")] {
        for is_http2 in [false, true] {
            let first = format!("{CHUNKED}{first}").leak();
            let outcome = ask_http1(first, End::Endless(part), false, is_http2).await;
            assert!(!matches!(outcome, Outcome::Whole(_)), "{first:?} {outcome:?}, HTTP/2 client: {is_http2}");
        }
    }
}

// === HTTP/2 ===

type Build = fn(u32) -> Vec<u8>;

/// An odd response over HTTP/2.
struct OddStream {
    case: &'static str,
    first: Build,
    /// Sent once the client has the head.
    then: Build,
    /// The connection is closed at the end.
    closes: bool,
    /// The frames violate rules of the connection, not only of the stream.
    ends_connection: bool,
}

fn head(stream: u32, flags: u8, more: &[(&str, &str)]) -> Vec<u8> {
    let block = fields([(":status", "200")].into_iter().chain(more.iter().copied()));
    Frame::bytes(HEADERS, END_HEADERS | flags, stream, &block)
}

/// Serves HTTP/2 connections. The order of the requests decides about the responses: see [`check`].
async fn serve_http2(odd: OddStream, waits: bool, events: Events) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, odd) = (listener.local_addr().unwrap(), Arc::new(odd));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (events, odd) = (events.clone(), odd.clone());
            tokio::spawn(async move {
                let mut conn = Frames::accept(stream, &[]).await;
                serve_frames(&mut conn, &odd, waits, &events).await;
            });
        }
    });
    address
}

async fn serve_frames(conn: &mut Frames, odd: &OddStream, waits: bool, events: &Events) {
    let mut held = None;
    while let Ok(frame) = conn.next().await {
        if frame.kind != HEADERS {
            continue;
        }
        let respond = |stream| [head(stream, 0, &[]), Frame::bytes(DATA, END_STREAM, stream, b"ok")].concat();
        match events.received.fetch_add(1, Ordering::SeqCst) {
            0 => held = Some(frame.stream),
            2 => {
                conn.send((odd.first)(frame.stream)).await;
                if waits {
                    events.head_arrived.notified().await;
                }
                conn.try_send((odd.then)(frame.stream)).await;
                if odd.closes {
                    return;
                }
            }
            _ => {
                let held = held.take_if(|_| events.received.load(Ordering::SeqCst) > 3);
                conn.try_send(respond(frame.stream)).await;
                if let Some(held) = held {
                    conn.try_send(respond(held)).await;
                }
            }
        }
    }
}

async fn check_http2(cases: impl Fn() -> Vec<OddStream>, outcome: &Outcome) {
    for is_http2 in [false, true] {
        for odd in cases() {
            let (events, case, ends_connection) = (Events::default(), odd.case, odd.ends_connection || odd.closes);
            let address = serve_http2(odd, *outcome == Outcome::BrokenOff, events.clone()).await;
            let gateway = Settings::to(address).set("protocol", "http2").start();
            let got = check(&gateway, is_http2, &events, ends_connection).await;
            assert_eq!(got, *outcome, "{case}, HTTP/2 client: {is_http2}");
        }
    }
}

#[tokio::test]
async fn incomplete_http2_body_is_broken_off() {
    let part: Build = |stream| [head(stream, 0, &[]), Frame::bytes(DATA, 0, stream, b"part")].concat();
    let announced: Build = |stream| head(stream, 0, &[("content-length", "2")]);
    let in_stream = move |case, first, then| OddStream { case, first, then, closes: false, ends_connection: false };
    let cases = move || {
        vec![
            in_stream("longer", announced, |stream| Frame::bytes(DATA, END_STREAM, stream, b"okpoison")),
            in_stream("shorter", announced, |stream| Frame::bytes(DATA, END_STREAM, stream, b"o")),
            in_stream("reset", part, |stream| Frame::bytes(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())),
            in_stream("quiet reset", part, |stream| Frame::bytes(RST_STREAM, 0, stream, &NO_ERROR.to_be_bytes())),
            OddStream { closes: true, ..in_stream("closed", part, |_| Vec::new()) },
            OddStream {
                closes: true,
                ..in_stream("goaway", part, |stream| {
                    Frame::bytes(GOAWAY, 0, 0, &[stream.to_be_bytes(), [0; 4]].concat())
                })
            },
            OddStream {
                ends_connection: true,
                ..in_stream("no frames", part, |_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())
            },
            OddStream { ends_connection: true, ..in_stream("second head", part, |stream| head(stream, 0, &[])) },
        ]
    };
    check_http2(cases, &Outcome::BrokenOff).await;
}

#[tokio::test]
async fn malformed_http2_head_is_a_502() {
    let nothing: Build = |_| Vec::new();
    let in_stream = move |case, first| OddStream { case, first, then: nothing, closes: false, ends_connection: false };
    let cases = move || {
        vec![
            in_stream("two lengths", |stream| head(stream, 0, &[("content-length", "2"), ("content-length", "3")])),
            in_stream("equal lengths", |stream| head(stream, 0, &[("content-length", "2"), ("content-length", "2")])),
            in_stream("leading blank", |stream| head(stream, 0, &[("x-a", " b")])),
            in_stream("trailing blank", |stream| head(stream, 0, &[("x-a", "b\t")])),
            in_stream("many fields", |stream| head(stream, 0, &[("x-a", "b"); 101])),
            in_stream("no number", |stream| head(stream, 0, &[("content-length", "+2")])),
            in_stream("no body", |stream| head(stream, END_STREAM, &[("content-length", "9")])),
            in_stream("quiet reset", |stream| Frame::bytes(RST_STREAM, 0, stream, &NO_ERROR.to_be_bytes())),
            OddStream {
                ends_connection: true,
                ..in_stream("data first", |stream| Frame::bytes(DATA, 0, stream, b"x"))
            },
        ]
    };
    check_http2(cases, &Outcome::BadGateway).await;
}
