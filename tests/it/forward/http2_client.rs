//! HTTP/2 clients of HTTP/1 origins.

use std::collections::VecDeque;

use http_body::Frame;

use super::*;
use crate::support::wire::frames::{self, DATA, END_STREAM, Frames, HEADERS, PRIORITY};

pub(super) type H2Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;
pub(super) type H2Sender = hyper::client::conn::http2::SendRequest<H2Body>;

pub(super) async fn http2(address: SocketAddr) -> H2Sender {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn http2_request_reaches_an_http1_origin_with_trailers() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, content-length\r\n\r\n").await;
        conn.raw.send("2\r\nok\r\n0\r\nx-sum: 7\r\ncontent-length: 9\r\n\r\n").await;
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
    let body = H2Body::new(FrameBody(frames.into()));
    let request = Request::post("http://api.example/a").header("cookie", "a=1").header("cookie", "b=2");
    let request = request.header("trailer", "x-sent, host").header("te", "trailers").body(body).unwrap();
    let response = soon(http2(gateway.address).await.send_request(request)).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let body = soon(response.into_body().collect()).await.unwrap();
    let trailers = body.trailers().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &HeaderValue::from_static("7")));
    assert_eq!(body.to_bytes(), "ok");
    let sent = origin.last_request();
    assert_eq!(sent.start, "POST /a HTTP/1.1");
    assert_eq!(
        (sent.field("host").as_deref(), sent.field("cookie").as_deref()),
        (Some("api.example"), Some("a=1; b=2"))
    );
    assert_eq!((sent.text().as_str(), sent.field("via").as_deref()), ("body", Some("2 tidegate")));
    assert_eq!(sent.trailers, [("x-sent".to_owned(), "1".to_owned())]);
}

#[tokio::test]
async fn trailers_after_a_body_of_known_length_are_forwarded() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let body = |trailers: &[(&'static str, &'static str)]| {
        let trailers = trailers.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)));
        H2Body::new(FrameBody([Frame::data(Bytes::from("abc")), Frame::trailers(trailers.collect())].into()))
    };
    let post = || Request::post("http://a/").header("content-length", "03");
    let request = post().header("trailer", "x-sum").body(body(&[("x-sum", "7")])).unwrap();
    assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), 200);
    assert_eq!(origin.last_request().trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!((origin.last_request().field("content-length"), origin.last_request().text().as_str()), (None, "abc"));

    let request = post().body(H2Body::new(Full::from("abc"))).unwrap();
    assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), 200);
    assert_eq!(
        (origin.last_request().field("content-length").as_deref(), origin.last_request().text().as_str()),
        (Some("3"), "abc")
    );

    let request = Request::post("http://a/").body(body(&[("x-sum", " 7")])).unwrap();
    assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), 400, "a trailer with a leading blank");
}

#[tokio::test]
async fn http2_field_values_with_outer_blanks_are_malformed() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    for (value, passes) in [(" a", false), ("a ", false), ("\ta", false), (" ", false), ("a b", true), ("", true)] {
        let request = Request::get("http://a/").header("x-api-key", value).body(H2Body::new(Full::default())).unwrap();
        // A malformed field resets its stream; the other streams continue.
        let status = soon(sender.send_request(request)).await.map(|response| response.status()).ok();
        assert_eq!(status, passes.then_some(StatusCode::OK), "{value:?}");
    }
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn dead_origin_resets_only_its_http2_stream() {
    let end = Arc::new(Notify::new());
    let ends = end.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let ends = ends.clone();
        async move {
            if conn.request().await.unwrap().start.contains("/dies") {
                conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart").await;
                ends.notified().await;
            } else {
                conn.raw.send(OK).await;
            }
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let request = |uri| Request::get(uri).body(H2Body::new(Full::default())).unwrap();
    let response = soon(sender.send_request(request("http://a/dies"))).await.unwrap();
    end.notify_one();
    assert!(soon(response.into_body().collect()).await.is_err());
    let response = soon(sender.send_request(request("http://a/"))).await.unwrap();
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "ok");
}

/// A body of these frames.
struct FrameBody(VecDeque<Frame<Bytes>>);

impl http_body::Body for FrameBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}
async fn client(gateway: &Gateway) -> Frames {
    Frames::connect(gateway.address, &[]).await
}

/// Returns the next HEADERS or DATA frame of stream 1.
async fn next(client: &mut Frames) -> frames::Frame {
    client.find(|frame| frame.stream == 1 && matches!(frame.kind, HEADERS | DATA)).await
}

#[tokio::test]
async fn http2_client_gets_103_and_100_before_the_response() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: y\r\nY: 1\r\n\r\n").await;
        let early = tokio::time::timeout(Duration::from_millis(100), conn.raw.exactly(1)).await;
        assert!(early.is_err(), "the body was not requested");
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(conn.raw.exactly(4).await.unwrap(), b"body");
        conn.raw.send(OK).await;
        conn.raw.rest().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client(&gateway).await;
    client.open(1, "PUT", "/", &[("content-length", "4"), ("expect", "100-continue")], false).await;
    for status in [103, 100] {
        let hint = next(&mut client).await;
        assert_eq!((hint.status(), hint.ends_stream()), (status, false));
    }
    assert_eq!(origin.last_request().field("expect").as_deref(), Some("100-continue"));
    client.frame(DATA, END_STREAM, 1, b"body").await;
    assert_eq!(next(&mut client).await.status(), 200);
}

#[tokio::test]
async fn http2_client_gets_a_final_response_instead_of_100() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await;
        conn.raw.rest().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client(&gateway).await;
    client.open(1, "PUT", "/", &[("content-length", "4"), ("expect", "100-continue")], false).await;
    assert_eq!(next(&mut client).await.status(), 401);
}

/// Starts a gateway and an origin that sends an event at first and after each notification.
async fn events() -> (Gateway, Arc<Notify>) {
    let notify = Arc::new(Notify::new());
    let notified = Arc::clone(&notify);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let notified = Arc::clone(&notified);
        async move {
            conn.request().await;
            conn.raw
                .send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            loop {
                conn.raw.send("9\r\ndata: 1\n\n\r\n").await;
                notified.notified().await;
            }
        }
    })
    .await;
    (Settings::to(origin.address).start(), notify)
}

#[tokio::test]
async fn server_sent_events_are_forwarded_immediately() {
    let (gateway, notify) = events().await;
    let mut http1 = gateway.client().await;
    http1.send(get("/")).await;
    assert_eq!(http1.head().await.unwrap().status(), 200);
    for _ in 0..3 {
        assert_eq!(http1.chunk().await.unwrap(), b"data: 1\n\n");
        notify.notify_one();
    }
    let (gateway, notify) = events().await;
    let mut http2 = client(&gateway).await;
    http2.get(1, "/").await;
    assert_eq!(next(&mut http2).await.status(), 200);
    for _ in 0..3 {
        assert_eq!(next(&mut http2).await.payload, b"data: 1\n\n");
        notify.notify_one();
    }
}

#[tokio::test]
async fn priority_field_is_forwarded_but_no_priority_frames() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client(&gateway).await;
    client.frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 255]).await;
    client.frame(0x10, 0, 0, b"\0\0\0\x01u=1").await; // PRIORITY_UPDATE (RFC 9218 section 7.1)
    client.open(1, "GET", "/", &[("priority", "u=1, i")], true).await;
    client.frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]).await;
    assert_eq!(next(&mut client).await.status(), 200);
    assert_eq!(origin.last_request().field("priority").as_deref(), Some("u=1, i"));
}
