//! Calls of gRPC: what goes wrong is told in their words, and their deadline ends them.

use super::http2::{H2Body, http2};
use super::*;

const MESSAGE: &[u8] = &[0, 0, 0, 0, 1, 7];

/// Answers with the beginning of a stream of messages, and no more until its peer is gone.
async fn unending(gone: &Arc<Notify>) -> Origin {
    let signal = gone.clone();
    Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw
                .send("HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            conn.raw.send("6\r\n\0\0\0\0\x01\x07\r\n").await;
            conn.raw.closed().await.ok();
            signal.notify_one();
        }
    })
    .await
}

async fn silent(gone: &Arc<Notify>) -> Origin {
    let signal = gone.clone();
    Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.closed().await.ok();
            signal.notify_one();
        }
    })
    .await
}

fn call(content_type: &str, timeout: Option<&str>) -> Request<H2Body> {
    let call = Request::post("http://a/a.B/C").header("content-type", content_type).header("te", "trailers");
    let call = timeout.into_iter().fold(call, |call, timeout| call.header("grpc-timeout", timeout));
    call.body(H2Body::new(Full::from(MESSAGE))).unwrap()
}

/// The status, `grpc-status` of the head, and whether no upstream had it.
async fn told(gateway: &Gateway, call: Request<H2Body>) -> (u16, String, bool) {
    let answer = soon(http2(gateway.address).await.send_request(call)).await.unwrap();
    let status = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
    (answer.status().as_u16(), status.unwrap_or_default(), answer.headers().contains_key("x-not-sent"))
}

#[tokio::test]
async fn a_call_without_an_answer_has_a_status_of_grpc() {
    let closed = "127.0.0.1:1".parse().unwrap();
    let unreachable = Settings::to(closed).start();
    assert_eq!(told(&unreachable, call("application/grpc", None)).await, (200, "14".to_owned(), true));
    assert_eq!(told(&unreachable, call("application/grpc-web+proto", None)).await, (200, "14".to_owned(), true));
    assert_eq!(told(&unreachable, call("application/json", None)).await, (502, String::new(), true));

    let gone = Arc::default();
    let slow = silent(&gone).await;
    let slow = Settings { response_timeout: Duration::from_millis(50), ..Settings::to(slow.address) }.start();
    assert_eq!(told(&slow, call("application/grpc", None)).await, (200, "4".to_owned(), false));

    let broken = Origin::with_response("nonsense\r\n\r\n").await;
    let broken = Settings::to(broken.address).start();
    assert_eq!(told(&broken, call("application/grpc", None)).await, (200, "14".to_owned(), false));
}

#[tokio::test]
async fn a_deadline_that_passes_before_the_answer_is_told_by_fields_alone_and_ends_the_request() {
    let gone = Arc::default();
    let origin = silent(&gone).await;
    let gateway = Settings::to(origin.address).start();
    assert_eq!(told(&gateway, call("application/grpc", Some("50m"))).await, (200, "4".to_owned(), false));
    soon(gone.notified()).await;
    assert_eq!(origin.last_request().field("grpc-timeout").as_deref(), Some("50m"));
    let series = r#"tidegate_upstream_requests_total{upstream="api",outcome="timed_out"} 1"#;
    assert!(gateway.metrics.render().contains(series));
}

#[tokio::test]
async fn a_deadline_that_passes_within_the_answer_is_told_by_trailers_and_ends_the_request() {
    let gone = Arc::default();
    let origin = unending(&gone).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let answer = soon(sender.send_request(call("application/grpc", Some("100m")))).await.unwrap();
    assert!(!answer.headers().contains_key("grpc-status"));
    let body = soon(answer.into_body().collect()).await.unwrap();
    let trailers = body.trailers().unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"4".parse().unwrap(), &"the deadline has passed".parse().unwrap())
    );
    assert_eq!(body.to_bytes(), MESSAGE);
    soon(gone.notified()).await;
}

#[tokio::test]
async fn the_answer_to_a_call_of_grpc_web_breaks_off_at_its_deadline() {
    let gone = Arc::default();
    let origin = unending(&gone).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let answer = soon(sender.send_request(call("application/grpc-web", Some("100m")))).await.unwrap();
    assert!(soon(answer.into_body().collect()).await.is_err());
    soon(gone.notified()).await;
}

#[tokio::test]
async fn an_answer_that_is_in_time_is_left_alone_and_other_requests_have_no_deadline() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {
            conn.raw
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\ngrpc-status: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    for (content_type, timeout) in [("application/grpc", "50S"), ("application/grpc", "nonsense"), ("text/plain", "1n")]
    {
        let mut sender = http2(gateway.address).await;
        let answer = soon(sender.send_request(call(content_type, Some(timeout)))).await.unwrap();
        let body = soon(answer.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0", "{content_type} {timeout}");
        assert_eq!(body.to_bytes(), "ok");
    }
}
