//! What clients of HTTP/2 are told before their answer, and while it comes.

use super::*;
use crate::wire::frames::{DATA, END_STREAM, Frame, Frames, HEADERS, PRIORITY};

async fn client(gateway: &Gateway) -> Frames {
    Frames::connect(gateway.address, &[]).await
}

/// The next frame of stream 1 that is HEADERS or DATA.
async fn next(client: &mut Frames) -> Frame {
    client.find(|frame| frame.stream == 1 && matches!(frame.kind, HEADERS | DATA)).await
}

#[tokio::test]
async fn hints_come_before_the_answer_and_a_body_that_waits_is_asked_for() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: y\r\nY: 1\r\n\r\n").await;
        let early = tokio::time::timeout(Duration::from_millis(100), conn.raw.exactly(1)).await;
        assert!(early.is_err(), "nobody has asked for the body");
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
async fn an_answer_that_comes_instead_of_a_100_asks_for_nothing() {
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

/// A gateway before an origin that sends an event, and another each time that it is let.
async fn events() -> (Gateway, Arc<Notify>) {
    let let_go = Arc::new(Notify::new());
    let go_on = Arc::clone(&let_go);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let go_on = Arc::clone(&go_on);
        async move {
            conn.request().await;
            conn.raw
                .send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            loop {
                conn.raw.send("9\r\ndata: 1\n\n\r\n").await;
                go_on.notified().await;
            }
        }
    })
    .await;
    (Settings::to(origin.address).start(), let_go)
}

#[tokio::test]
async fn an_event_is_seen_before_the_next_is_sent_in_either_version() {
    let (gateway, let_go) = events().await;
    let mut old = gateway.client().await;
    old.send(get("/")).await;
    assert_eq!(old.head().await.unwrap().status(), 200);
    for _ in 0..3 {
        assert_eq!(old.chunk().await.unwrap(), b"data: 1\n\n");
        let_go.notify_one();
    }
    let (gateway, let_go) = events().await;
    let mut new = client(&gateway).await;
    new.get(1, "/").await;
    assert_eq!(next(&mut new).await.status(), 200);
    for _ in 0..3 {
        assert_eq!(next(&mut new).await.payload, b"data: 1\n\n");
        let_go.notify_one();
    }
}

#[tokio::test]
async fn priorities_are_for_the_origin_and_frames_of_them_for_nobody() {
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
