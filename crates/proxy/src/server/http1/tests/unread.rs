//! Request bodies that are not read to their end, and the requests that follow them.

use super::*;
use crate::server::http1::request_reader::MAX_DISCARDED;
use crate::transport::BodyData;
use crate::wire::soon;

/// Rejects every request without reading its body.
async fn reject(_: Request<RequestBody>, _: SocketAddr) -> Response<Full<Bytes>> {
    Response::builder().status(429).body(Full::from("no")).unwrap()
}

fn post(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n")
}

/// Regression test: the response kept the connection alive, but the connection was closed.
#[tokio::test]
async fn short_unread_body_is_discarded() {
    let server = start(reject);
    let mut client = Raw::connect(server.address).await;
    for _ in 0..3 {
        let response = client.ask(post("Content-Length: 5")).await;
        assert_eq!((response.status(), response.field("connection")), (429, None));
        client.send("he").await;
        client.send("llo").await;
    }
    let body = "x".repeat(usize::try_from(MAX_DISCARDED).unwrap());
    let (first, second) = body.split_at(1000);
    assert_eq!(client.ask(post(&format!("Content-Length: {MAX_DISCARDED}")) + first).await.status(), 429);
    client.send([second, &post("Content-Length: 0")].concat()).await;
    assert_eq!(client.response(false).await.status(), 429);
}

#[tokio::test]
async fn long_unread_body_closes_the_connection() {
    let server = start(reject);
    for fields in [&format!("Content-Length: {}", MAX_DISCARDED + 1), "Transfer-Encoding: chunked"] {
        let mut client = Raw::connect(server.address).await;
        let response = client.ask(post(fields)).await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (429, Some("close")), "{fields}");
        client.closed().await.unwrap();
    }
    // A chunked body that has already arrived costs nothing to discard.
    let mut client = Raw::connect(server.address).await;
    let response = client.ask(post("Transfer-Encoding: chunked") + "1\r\na\r\n0\r\n\r\n").await;
    assert_eq!((response.status(), response.field("connection")), (429, None));
    assert_eq!(client.ask(post("Content-Length: 0")).await.status(), 429);
}

/// This test waits for the real time limit of two seconds.
#[tokio::test]
async fn unread_body_has_a_short_timeout() {
    let server = start(reject);
    let mut client = Raw::connect(server.address).await;
    assert_eq!(client.ask(post("Content-Length: 5")).await.status(), 429);
    client.send("hell").await;
    client.closed().await.unwrap();
}

#[tokio::test]
async fn malformed_chunks_get_one_response_and_a_close() {
    let server = start(|request, _| describe(request));
    for body in ["x\r\n", "-1\r\na\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n", "0\r\na: b\n\n"] {
        let mut client = Raw::connect(server.address).await;
        let bytes = post("Transfer-Encoding: chunked") + body + "GET /hidden HTTP/1.1\r\n\r\n";
        let response = client.ask(&bytes).await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (400, Some("close")), "{body:?}");
        assert!(soon(client.rest()).await.unwrap_or_default().is_empty(), "{body:?}");
    }
}

/// Regression test: `100 Continue` was written in the middle of a response that had begun before the request body was
/// read.
#[tokio::test]
async fn continue_is_not_sent_after_the_response_has_begun() {
    let server = start(|request: Request<RequestBody>, _| async {
        let first = Frame::data(BodyData::from(Bytes::from("one")));
        Response::new(DelayedEcho { first: Some(first), request: request.into_body(), paused: false })
    });
    let mut client = Raw::connect(server.address).await;
    let response = client.ask(post("Expect: 100-continue\r\nContent-Length: 3") + "two").await;
    assert_eq!((response.status(), response.text().as_str()), (200, "onetwo"));
    assert_eq!(response.field("connection").as_deref(), Some("close"));
}

/// Yields a frame, then a pause in which the frame is written, then the request body.
struct DelayedEcho {
    first: Option<Frame<BodyData>>,
    request: RequestBody,
    paused: bool,
}

impl Body for DelayedEcho {
    type Data = BodyData;
    type Error = crate::upstream::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyData>, Self::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if !std::mem::replace(&mut self.paused, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.request).poll_frame(cx)
    }
}
