//! What is sent again, and what is not.

use super::*;

fn no_answers(mut asked: Asked, reason: Reason) {
    asked.respond.send_reset(reason);
}

#[tokio::test]
async fn a_stream_that_the_origin_refuses_is_sent_again_with_its_body_whatever_the_method() {
    let refusals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = refusals.clone();
    let origin = H2Origin::start(move |mut asked: Asked| {
        let first = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 3 < 2;
        async move {
            if first {
                // Some of the body was sent, as the window was open.
                asked.body.data().await.unwrap().unwrap();
                return no_answers(asked, Reason::REFUSED_STREAM);
            }
            let (body, _) = asked.all().await.unwrap();
            let mut to = asked.respond.send_response(Response::new(()), false).unwrap();
            to.send_data(Bytes::from(body), true).unwrap();
        }
    })
    .await;
    let gateway = origin.gateway();
    let long = "x".repeat(40_000);
    for body in ["body", &long] {
        let before = origin.requests();
        let answer = gateway.ask(chunked(body)).await;
        assert_eq!((answer.status(), answer.text().as_str()), (200, body));
        assert_eq!(origin.requests() - before, 3);
    }
}

#[tokio::test]
async fn an_origin_that_refuses_everything_is_left_in_peace_after_three_tries() {
    let origin = H2Origin::start(|asked| async move { no_answers(asked, Reason::REFUSED_STREAM) }).await;
    let gateway = origin.gateway();
    let answer = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!((answer.status(), answer.field("x-not-sent").as_deref()), (502, Some("yes")));
    assert_eq!(origin.requests(), 3);
    assert_eq!(attempts(&gateway), [r#"outcome="refused"} 1"#]);
}

/// Returns the outcomes of all attempts, with their counts.
fn attempts(gateway: &Gateway) -> Vec<String> {
    let page = gateway.metrics.render();
    let series = page.lines().filter(|line| line.starts_with("tidegate_upstream_attempts_total{"));
    series.filter_map(|line| line.rsplit(',').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_stream_that_ends_otherwise_is_not_sent_again() {
    for reason in [Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::PROTOCOL_ERROR, Reason::NO_ERROR] {
        let origin = H2Origin::start(move |asked| async move { no_answers(asked, reason) }).await;
        let gateway = origin.gateway();
        let answer = gateway.ask(get("/")).await;
        assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None), "{reason:?}");
        assert_eq!(origin.requests(), 1, "{reason:?}");
        assert_eq!(attempts(&gateway), [r#"outcome="closed"} 1"#], "{reason:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_to_be_kept_is_sent_once() {
    let origin = H2Origin::start(|mut asked| async move {
        let mut read = 0;
        while read < 65_000 {
            let data = asked.body.data().await.unwrap().unwrap();
            asked.body.flow_control().release_capacity(data.len()).unwrap();
            read += data.len();
        }
        while read <= 65_536 {
            let data = asked.body.data().await.unwrap().unwrap();
            read += data.len();
        }
        no_answers(asked, Reason::REFUSED_STREAM);
    })
    .await;
    let gateway = origin.gateway();
    let answer = gateway.ask(chunked(&"x".repeat(100_000))).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
    assert_eq!(origin.requests(), 1);
}

/// An origin whose connections are spelled out, frame by frame.
pub(super) async fn spelled<F, S>(script: S) -> (SocketAddr, Arc<Mutex<usize>>)
where
    S: Fn(RawFrames, usize) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(0)));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let index = *counted.lock();
            *counted.lock() += 1;
            let visit = RawFrames::accept(stream, &[]).await;
            tokio::spawn(script(visit, index));
        }
    });
    (address, connections)
}

async fn answer_all(mut visit: RawFrames) {
    while let Ok(frame) = visit.next().await {
        if frame.ends_stream() {
            visit.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, frame.stream, &[0x88]).await;
        }
    }
}

pub(super) fn go_away(last: u32) -> Vec<u8> {
    [last.to_be_bytes(), [0; 4]].concat()
}

#[tokio::test]
async fn a_request_behind_the_last_of_a_goaway_is_sent_on_another_connection() {
    let (address, connections) = spelled(|mut visit, index| async move {
        if index > 0 {
            return answer_all(visit).await;
        }
        let asked = visit.find(frames::Frame::ends_stream).await;
        visit.frame(frames::GOAWAY, 0, 0, &go_away(asked.stream - 1)).await;
        while visit.next().await.is_ok() {}
    })
    .await;
    let gateway = to(address).start();
    for expected in [2, 2] {
        assert_eq!(gateway.ask(chunked("body")).await.status(), 200);
        assert_eq!(*connections.lock(), expected);
    }
}

#[tokio::test]
async fn a_request_before_the_last_of_a_goaway_is_answered_and_the_next_goes_elsewhere() {
    let (address, connections) = spelled(|mut visit, index| async move {
        if index > 0 {
            return answer_all(visit).await;
        }
        let asked = visit.find(frames::Frame::ends_stream).await;
        visit.frame(frames::GOAWAY, 0, 0, &go_away(asked.stream)).await;
        visit.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, asked.stream, &[0x89]).await;
        while visit.next().await.is_ok() {}
    })
    .await;
    let gateway = to(address).start();
    assert_eq!(gateway.ask(get("/")).await.status(), 204);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(*connections.lock(), 2);
}

#[tokio::test]
async fn what_was_taken_by_a_connection_that_ends_is_sent_again_if_that_does_no_harm() {
    for (method, status) in [("GET", 200), ("POST", 502)] {
        let (address, connections) = spelled(|mut visit, index| async move {
            if index > 0 {
                return answer_all(visit).await;
            }
            let first = visit.find(frames::Frame::ends_stream).await;
            visit.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, first.stream, &[0x88]).await;
            visit.find(frames::Frame::ends_stream).await;
        })
        .await;
        let gateway = to(address).start();
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
        let answer = gateway.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).await;
        assert_eq!((answer.status(), answer.field("x-not-sent")), (status, None), "{method}");
        assert_eq!(*connections.lock(), if status == 200 { 2 } else { 1 });
        let repeats = format!(r#"tidegate_upstream_repeats_total{{upstream="api"}} {}"#, u8::from(status == 200));
        assert!(gateway.metrics.render().contains(&repeats) || status != 200);
    }
}

#[tokio::test]
async fn a_new_connection_that_ends_unanswered_is_the_last() {
    let (address, connections) = spelled(|mut visit, _| async move {
        visit.find(frames::Frame::ends_stream).await;
    })
    .await;
    let gateway = to(address).start();
    let answer = gateway.ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
    assert_eq!(*connections.lock(), 1);
}
