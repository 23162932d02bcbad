//! Bodies that nobody reads to their end, and the requests behind them.

use super::*;
use crate::server::http1::MAX_DISCARDED;
use crate::wire::soon;

/// Refuses whatever is asked, without a look at its body.
async fn refuse(_: Request<RequestBody>, _: SocketAddr) -> Response<Full<Bytes>> {
    Response::builder().status(429).body(Full::from("no")).unwrap()
}

fn post(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n")
}

/// It said keep-alive, and closed.
#[tokio::test]
async fn a_short_body_that_comes_behind_a_refusal_is_thrown_away_and_the_next_request_answered() {
    let server = start(refuse);
    let mut client = Raw::connect(server.address).await;
    for _ in 0..3 {
        let answer = client.ask(post("Content-Length: 5")).await;
        assert_eq!((answer.status(), answer.field("connection")), (429, None));
        client.send("he").await;
        client.send("llo").await;
    }
    let body = "x".repeat(usize::try_from(MAX_DISCARDED).unwrap());
    let (first, second) = body.split_at(1000);
    assert_eq!(client.ask(post(&format!("Content-Length: {MAX_DISCARDED}")) + first).await.status(), 429);
    client.send([second, &post("Content-Length: 0")].concat()).await;
    assert_eq!(client.answer(false).await.status(), 429);
}

#[tokio::test]
async fn a_long_body_or_one_without_an_end_in_sight_is_told_that_the_connection_closes() {
    let server = start(refuse);
    for fields in [&format!("Content-Length: {}", MAX_DISCARDED + 1), "Transfer-Encoding: chunked"] {
        let mut client = Raw::connect(server.address).await;
        let answer = client.ask(post(fields)).await;
        assert_eq!((answer.status(), answer.field("connection").as_deref()), (429, Some("close")), "{fields}");
        client.closed().await.unwrap();
    }
    // What is here already costs nothing.
    let mut client = Raw::connect(server.address).await;
    let answer = client.ask(post("Transfer-Encoding: chunked") + "1\r\na\r\n0\r\n\r\n").await;
    assert_eq!((answer.status(), answer.field("connection")), (429, None));
    assert_eq!(client.ask(post("Content-Length: 0")).await.status(), 429);
}

/// The wait itself is what is tested: two seconds of it.
#[tokio::test]
async fn a_body_that_is_not_wanted_has_little_time_to_come() {
    let server = start(refuse);
    let mut client = Raw::connect(server.address).await;
    assert_eq!(client.ask(post("Content-Length: 5")).await.status(), 429);
    client.send("hell").await;
    client.closed().await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_none_is_answered_once_with_a_close() {
    let server = start(|request, _| describe(request));
    for body in ["x\r\n", "-1\r\na\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n", "0\r\na: b\n\n"] {
        let mut client = Raw::connect(server.address).await;
        let bytes = post("Transfer-Encoding: chunked") + body + "GET /hidden HTTP/1.1\r\n\r\n";
        let answer = client.ask(&bytes).await;
        assert_eq!((answer.status(), answer.field("connection").as_deref()), (400, Some("close")), "{body:?}");
        assert!(soon(client.rest()).await.unwrap_or_default().is_empty(), "{body:?}");
    }
}

/// `100 Continue` stood in the middle of an answer whose body had begun before the request's was asked for.
#[tokio::test]
async fn a_client_is_not_asked_for_its_body_once_its_answer_has_begun() {
    let server = start(|request: Request<RequestBody>, _| async {
        let first = Frame::data(Bytes::from("one"));
        Response::new(Later { first: Some(first), request: request.into_body(), paused: false })
    });
    let mut client = Raw::connect(server.address).await;
    let answer = client.ask(post("Expect: 100-continue\r\nContent-Length: 3") + "two").await;
    assert_eq!((answer.status(), answer.text().as_str()), (200, "onetwo"));
    assert_eq!(answer.field("connection").as_deref(), Some("close"));
}

/// A frame, a pause in which it is written, then the body of the request.
struct Later {
    first: Option<Frame<Bytes>>,
    request: RequestBody,
    paused: bool,
}

impl Body for Later {
    type Data = Bytes;
    type Error = crate::upstream::BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
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
