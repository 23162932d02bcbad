//! gRPC calls: errors are gRPC errors, and deadlines end calls.

use super::http2_client::{H2Body, http2};
use super::*;

const MESSAGE: &[u8] = &[0, 0, 0, 0, 1, 7];

/// Starts an origin whose response has one message and does not end. Notifies `gone` when its peer disconnects.
async fn endless_origin(gone: &Arc<Notify>) -> Origin {
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

/// Starts an origin that does not respond. Notifies `gone` when its peer disconnects.
async fn silent_origin(gone: &Arc<Notify>) -> Origin {
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

/// Returns the status, the `grpc-status` of the head, and whether the call was not sent.
async fn outcome(gateway: &Gateway, call: Request<H2Body>) -> (u16, String, bool) {
    let response = soon(http2(gateway.address).await.send_request(call)).await.unwrap();
    let status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
    (response.status().as_u16(), status.unwrap_or_default(), response.headers().contains_key("x-not-sent"))
}

#[tokio::test]
async fn failed_call_has_a_grpc_status() {
    let closed = "127.0.0.1:1".parse().unwrap();
    let unreachable = Settings::to(closed).start();
    assert_eq!(outcome(&unreachable, call("application/grpc", None)).await, (200, "14".to_owned(), true));
    assert_eq!(outcome(&unreachable, call("application/grpc-web+proto", None)).await, (200, "14".to_owned(), true));
    assert_eq!(outcome(&unreachable, call("application/json", None)).await, (502, String::new(), true));

    let gone = Arc::default();
    let slow = silent_origin(&gone).await;
    let slow = Settings::to(slow.address).timeout("response", "50ms").start();
    assert_eq!(outcome(&slow, call("application/grpc", None)).await, (200, "4".to_owned(), false));

    let broken = Origin::with_response("nonsense\r\n\r\n").await;
    let broken = Settings::to(broken.address).start();
    assert_eq!(outcome(&broken, call("application/grpc", None)).await, (200, "14".to_owned(), false));
}

#[tokio::test]
async fn grpc_deadline_before_response_is_an_error_in_fields() {
    let gone = Arc::default();
    let origin = silent_origin(&gone).await;
    let gateway = Settings::to(origin.address).start();
    assert_eq!(outcome(&gateway, call("application/grpc", Some("500m"))).await, (200, "4".to_owned(), false));
    soon(gone.notified()).await;
    let forwarded = origin.last_request().field("grpc-timeout").expect("a timeout");
    assert!(forwarded == "500m" || forwarded.ends_with('u'), "{forwarded}");
    let series = r#"tidegate_upstream_requests_total{upstream="api",outcome="timed_out"} 1"#;
    assert!(gateway.has_metric(series));
}

#[tokio::test]
async fn grpc_deadline_during_response_ends_it_with_trailers() {
    let gone = Arc::default();
    let origin = endless_origin(&gone).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let response = soon(sender.send_request(call("application/grpc", Some("100m")))).await.unwrap();
    assert!(!response.headers().contains_key("grpc-status"));
    let body = soon(response.into_body().collect()).await.unwrap();
    let trailers = body.trailers().unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"4".parse().unwrap(), &"the deadline has passed".parse().unwrap())
    );
    assert_eq!(body.to_bytes(), MESSAGE);
    soon(gone.notified()).await;
}

#[tokio::test]
async fn grpc_web_response_breaks_off_at_its_deadline() {
    let gone = Arc::default();
    let origin = endless_origin(&gone).await;
    let gateway = Settings::to(origin.address).start();
    let mut sender = http2(gateway.address).await;
    let response = soon(sender.send_request(call("application/grpc-web", Some("100m")))).await.unwrap();
    assert!(soon(response.into_body().collect()).await.is_err());
    soon(gone.notified()).await;
}

#[tokio::test]
async fn response_before_the_grpc_deadline_is_unchanged() {
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
        let response = soon(sender.send_request(call(content_type, Some(timeout)))).await.unwrap();
        let body = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0", "{content_type} {timeout}");
        assert_eq!(body.to_bytes(), "ok");
    }
}
