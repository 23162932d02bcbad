//! Clients of HTTP/2 before origins of HTTP/1.

use super::*;

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
async fn a_request_of_http2_reaches_an_origin_of_http1_with_its_trailers() {
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
    let body = H2Body::new(Frames(frames.into()));
    let request = Request::post("http://api.example/a").header("cookie", "a=1").header("cookie", "b=2");
    let request = request.header("trailer", "x-sent, host").header("te", "trailers").body(body).unwrap();
    let answer = soon(http2(gateway.address).await.send_request(request)).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_2);
    let body = soon(answer.into_body().collect()).await.unwrap();
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
async fn trailers_behind_a_body_of_known_length_arrive_and_its_length_is_written_anew() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let body = |trailers: &[(&'static str, &'static str)]| {
        let trailers = trailers.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)));
        H2Body::new(Frames([Frame::data(Bytes::from("abc")), Frame::trailers(trailers.collect())].into()))
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
    assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), 400, "a trailer with a blank before it");
}

#[tokio::test]
async fn a_value_of_http2_with_a_blank_around_it_is_malformed_and_never_trimmed() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    for (value, passes) in [(" a", false), ("a ", false), ("\ta", false), (" ", false), ("a b", true), ("", true)] {
        let request = Request::get("http://a/").header("x-api-key", value).body(H2Body::new(Full::default())).unwrap();
        // Its stream is reset, and the others go on.
        let status = soon(sender.send_request(request)).await.map(|answer| answer.status()).ok();
        assert_eq!(status, passes.then_some(StatusCode::OK), "{value:?}");
    }
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn a_stream_of_http2_is_reset_when_its_origin_dies_and_the_others_go_on() {
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
    let answer = soon(sender.send_request(request("http://a/dies"))).await.unwrap();
    end.notify_one();
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
