//! Requests that are sent again, and requests that are not.

use super::*;

fn reset(mut request: OriginRequest, reason: Reason) {
    request.respond.send_reset(reason);
}

#[tokio::test]
async fn refused_stream_is_repeated_with_its_body() {
    let refusals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = refusals.clone();
    let origin = H2Origin::start(move |mut request: OriginRequest| {
        let first = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 3 < 2;
        async move {
            if first {
                // The window is open, so a part of the body was sent.
                request.body.data().await.unwrap().unwrap();
                return reset(request, Reason::REFUSED_STREAM);
            }
            let (body, _) = request.read_all().await.unwrap();
            let mut stream = request.respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from(body), true).unwrap();
        }
    })
    .await;
    let gateway = origin.gateway();
    let long = "x".repeat(40_000);
    for body in ["body", &long] {
        let before = origin.requests();
        let response = gateway.ask(chunked(body)).await;
        assert_eq!((response.status(), response.text().as_str()), (200, body));
        assert_eq!(origin.requests() - before, 3);
    }
}

/// Regression test: the gateway did not forward informational responses to a repeated request with a body.
#[tokio::test]
async fn repeated_request_gets_informational_responses() {
    let first = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let origin = H2Origin::start(move |mut request: OriginRequest| {
        let is_first = first.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            if is_first {
                request.body.data().await.unwrap().unwrap();
                return reset(request, Reason::REFUSED_STREAM);
            }
            let hint = Response::builder().status(103).body(()).unwrap();
            request.respond.send_informational(hint).unwrap();
            request.respond_with("ok").await;
        }
    })
    .await;
    let gateway = origin.gateway();
    let mut client = gateway.client().await;
    client.send(chunked("body")).await;
    assert_eq!(client.head().await.unwrap().status(), 103);
    assert_eq!(client.response(false).await.status(), 200);
    assert_eq!(origin.requests(), 2);
}

#[tokio::test]
async fn refused_stream_is_tried_three_times() {
    let origin = H2Origin::start(|request| async move { reset(request, Reason::REFUSED_STREAM) }).await;
    let gateway = to(origin.address).set("retry", "off").start();
    let response = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!((response.status(), response.field("x-not-sent").as_deref()), (502, Some("yes")));
    assert_eq!(origin.requests(), 3);
    assert_eq!(attempts(&gateway), [r#"outcome="refused"} 1"#]);
}

/// Returns the outcomes of all attempts, with their counts.
fn attempts(gateway: &Gateway) -> Vec<String> {
    let page = gateway.local.metrics.render();
    let series = page.lines().filter(|line| line.starts_with("tidegate_upstream_attempts_total{"));
    series.filter_map(|line| line.rsplit(',').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn other_resets_are_not_repeated() {
    for reason in [Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::PROTOCOL_ERROR, Reason::NO_ERROR] {
        let origin = H2Origin::start(move |request| async move { reset(request, reason) }).await;
        let gateway = origin.gateway();
        let response = gateway.ask(get("/")).await;
        assert_eq!((response.status(), response.field("x-not-sent")), (502, None), "{reason:?}");
        assert_eq!(origin.requests(), 1, "{reason:?}");
        assert_eq!(attempts(&gateway), [r#"outcome="closed"} 1"#], "{reason:?}");
    }
}

#[tokio::test]
async fn too_long_body_is_not_repeated() {
    let origin = H2Origin::start(|mut request| async move {
        let mut read = 0;
        while read < 65_000 {
            let data = request.body.data().await.unwrap().unwrap();
            request.body.flow_control().release_capacity(data.len()).unwrap();
            read += data.len();
        }
        while read <= 65_536 {
            let data = request.body.data().await.unwrap().unwrap();
            read += data.len();
        }
        reset(request, Reason::REFUSED_STREAM);
    })
    .await;
    let gateway = origin.gateway();
    let response = gateway.ask(chunked(&"x".repeat(100_000))).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
    assert_eq!(origin.requests(), 1);
}

/// Starts an origin that runs `script` on the frames of every connection.
pub(super) async fn scripted_frames<F, S>(script: S) -> (SocketAddr, Arc<Mutex<usize>>)
where
    S: Fn(Frames, usize) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(0)));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let index = *counted.lock();
            *counted.lock() += 1;
            let conn = Frames::accept(stream, &[]).await;
            tokio::spawn(script(conn, index));
        }
    });
    (address, connections)
}

async fn answer_all(mut conn: Frames) {
    while let Ok(frame) = conn.next().await {
        if frame.ends_stream() {
            conn.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, frame.stream, &[0x88]).await;
        }
    }
}

pub(super) fn goaway_payload(last: u32) -> Vec<u8> {
    [last.to_be_bytes(), [0; 4]].concat()
}

#[tokio::test]
async fn request_after_goaway_is_sent_on_another_connection() {
    let (address, connections) = scripted_frames(|mut conn, index| async move {
        if index > 0 {
            return answer_all(conn).await;
        }
        let request = conn.find(frames::Frame::ends_stream).await;
        conn.frame(frames::GOAWAY, 0, 0, &goaway_payload(request.stream - 1)).await;
        while conn.next().await.is_ok() {}
    })
    .await;
    let gateway = to(address).start();
    for expected in [2, 2] {
        assert_eq!(gateway.ask(chunked("body")).await.status(), 200);
        assert_eq!(*connections.lock(), expected);
    }
}

#[tokio::test]
async fn request_before_goaway_is_answered_on_its_connection() {
    let (address, connections) = scripted_frames(|mut conn, index| async move {
        if index > 0 {
            return answer_all(conn).await;
        }
        let request = conn.find(frames::Frame::ends_stream).await;
        conn.frame(frames::GOAWAY, 0, 0, &goaway_payload(request.stream)).await;
        conn.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, request.stream, &[0x89]).await;
        while conn.next().await.is_ok() {}
    })
    .await;
    let gateway = to(address).start();
    assert_eq!(gateway.ask(get("/")).await.status(), 204);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(*connections.lock(), 2);
}

#[tokio::test]
async fn idempotent_request_is_repeated_if_its_connection_ends() {
    for (method, status) in [("GET", 200), ("POST", 502)] {
        let (address, connections) = scripted_frames(|mut conn, index| async move {
            if index > 0 {
                return answer_all(conn).await;
            }
            let first = conn.find(frames::Frame::ends_stream).await;
            conn.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, first.stream, &[0x88]).await;
            conn.find(frames::Frame::ends_stream).await;
        })
        .await;
        let gateway = to(address).start();
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
        let response = gateway.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).await;
        assert_eq!((response.status(), response.field("x-not-sent")), (status, None), "{method}");
        assert_eq!(*connections.lock(), if status == 200 { 2 } else { 1 });
        let repeats = format!(r#"tidegate_upstream_repeats_total{{upstream="api"}} {}"#, u8::from(status == 200));
        assert!(gateway.has_metric(&repeats) || status != 200);
    }
}

#[tokio::test]
async fn request_on_a_new_connection_is_not_repeated() {
    let (address, connections) = scripted_frames(|mut conn, _| async move {
        conn.find(frames::Frame::ends_stream).await;
    })
    .await;
    let gateway = to(address).start();
    let response = gateway.ask(get("/")).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
    assert_eq!(*connections.lock(), 1);
}
