//! Uploads: early responses, `Expect: 100-continue`, and clients that send slowly.

use super::*;
use crate::support::wire::frames::{DATA, END_STREAM, Frame, Frames, HEADERS};

/// More than the socket buffers hold.
const UPLOAD: usize = 32 << 20;

/// Sends a large upload while waiting for the response.
pub(super) async fn upload(gateway: &Gateway) -> (Raw, Message) {
    let (mut client, sending) = start_upload(gateway).await;
    let response = client.response(false).await;
    sending.abort();
    (client, response)
}

/// Starts a large upload in a separate task.
async fn start_upload(gateway: &Gateway) -> (Raw, tokio::task::JoinHandle<()>) {
    let stream = gateway.client().await.stream.into_std().unwrap();
    let mut writer = tokio::net::TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    let mut client = Raw::new(tokio::net::TcpStream::from_std(stream).unwrap());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n")).await;
    // Fails if the connection closes first.
    let sending = tokio::spawn(async move { drop(writer.write_all(&vec![7; UPLOAD]).await) });
    (client, sending)
}

fn rejection(status: u16, connection: &str) -> String {
    format!("HTTP/1.1 {status} No\r\nContent-Length: 20000\r\nConnection: {connection}\r\n\r\n{}", "x".repeat(20000))
}

#[tokio::test]
async fn early_rejection_is_complete_despite_a_reset() {
    for status in [401, 413, 429, 503] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            conn.head().await;
            conn.raw.send(rejection(status, "close")).await;
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let (_, response) = upload(&gateway).await;
        assert_eq!((response.status(), response.body.len()), (status, 20000));
        assert_eq!(origin.connections(), 1);
    }
}

#[tokio::test]
async fn upload_stops_after_a_rejection_with_close() {
    let (sent, mut counts) = tokio::sync::mpsc::unbounded_channel();
    let rejected = Arc::new(Notify::new());
    let was_rejected = rejected.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let (sent, was_rejected) = (sent.clone(), was_rejected.clone());
        async move {
            conn.head().await;
            // Only half of the response, but the status is known.
            conn.raw.send("HTTP/1.1 413 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nno").await;
            was_rejected.notified().await;
            conn.raw.send("no").await;
            sent.send(conn.raw.rest().await.unwrap_or_default().len()).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let (mut client, sending) = start_upload(&gateway).await;
    assert_eq!(client.head().await.unwrap().status(), 413);
    rejected.notify_one();
    assert_eq!(client.exactly(4).await.unwrap(), b"nono");
    sending.abort();
    let count = soon(counts.recv()).await.unwrap();
    assert!(count < UPLOAD / 2, "{count} bytes were sent after the rejection");
}

#[tokio::test]
async fn unfinished_upload_closes_its_connection() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send(rejection(413, "keep-alive")).await;
        // Reads no more, so that the upload is not complete when the response ends.
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    for asked in 1..=2 {
        let (_, response) = upload(&gateway).await;
        assert_eq!((response.status(), response.body.len(), origin.connections()), (413, 20000, asked));
    }
}

#[tokio::test]
async fn continue_of_the_origin_is_forwarded_to_the_client() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        let head = conn.head().await.unwrap();
        assert_eq!(head.field("expect").as_deref(), Some("100-continue"));
        // No body is sent before the 100 response.
        let early = tokio::time::timeout(Duration::from_millis(100), conn.raw.exactly(1)).await;
        assert!(early.is_err());
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(conn.raw.exactly(4).await.unwrap(), b"body");
        conn.raw.send(OK).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.response(false).await.status(), 100);
    client.send("body").await;
    assert_eq!(client.response(false).await.status(), 200);
}

/// The `timeouts.response` of uploads that wait for a 100, and a time of which two are longer.
const RESPONSE_TIMEOUT: &str = "600ms";
const MOST_OF_IT: Duration = Duration::from_millis(350);

/// Starts an origin that takes most of the response time before it requests the body, if it does, and after the body.
async fn slow_origin(requests_body: bool) -> Origin {
    Origin::start(move |mut conn: OriginConnection| async move {
        conn.head().await;
        if requests_body {
            tokio::time::sleep(MOST_OF_IT).await;
            conn.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        conn.raw.exactly(4).await.ok();
        tokio::time::sleep(MOST_OF_IT).await;
        conn.raw.send(OK).await;
    })
    .await
}

/// Regression test: the wait for the 100 was part of the response time, and such uploads got a 504.
#[tokio::test]
async fn response_time_counts_from_the_request_for_the_body() {
    for requests_body in [true, false] {
        let origin = slow_origin(requests_body).await;
        let gateway = Settings::to(origin.address).timeout("response", RESPONSE_TIMEOUT).start();
        let mut client = gateway.client().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
        assert_eq!(client.response(false).await.status(), 100);
        client.send("body").await;
        assert_eq!(client.response(false).await.status(), 200, "{requests_body}");

        let mut client = Frames::connect(gateway.address, &[]).await;
        client.open(1, "PUT", "/", &[("content-length", "4"), ("expect", "100-continue")], false).await;
        let is_head = |frame: &Frame| frame.kind == HEADERS;
        assert_eq!(client.find(is_head).await.status(), 100);
        client.frame(DATA, END_STREAM, 1, b"body").await;
        assert_eq!(client.find(is_head).await.status(), 200, "{requests_body}");
    }
}

/// Regression test: a few uploads whose clients were slow ejected a target.
#[tokio::test]
async fn client_that_sends_no_body_ejects_no_target() {
    let start = || {
        Origin::start(|mut conn: OriginConnection| async move {
            while let Some(head) = conn.head().await {
                if head.start.starts_with("GET") {
                    conn.raw.send(OK).await;
                }
            }
        })
    };
    let origins = [start().await, start().await];
    let gateway = Settings::to_all([origins[0].address, origins[1].address])
        .timeout("response", "50ms")
        .set("eject", "{ after: 1 }")
        .start();
    for _ in 0..4 {
        let mut client = gateway.client().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
        assert_eq!((client.head().await.unwrap().status(), client.response(false).await.status()), (100, 408));
    }
    for _ in 0..4 {
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
    }
    for origin in origins {
        assert_eq!(origin.requests().iter().filter(|head| head.start.starts_with("GET")).count(), 2);
    }
}

#[tokio::test]
async fn rejected_body_is_not_sent() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        conn.raw.closed().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    let response = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!((response.status(), response.text().as_str()), (413, "big"));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn http10_client_gets_no_100_continue() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let request = "POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody";
    assert_eq!(gateway.ask(request).await.status(), 200);
    assert_eq!((origin.last_request().field("expect"), origin.last_request().text().as_str()), (None, "body"));
}

/// The `body_timeout` of [`MIN_RATE`].
const BODY_TIMEOUT: Duration = Duration::from_millis(300);

/// A minimum rate for clients.
const MIN_RATE: &str = ", body_timeout: 300ms, min_rate: 1000B";

/// Sends a byte at intervals until the connection closes.
async fn trickle(client: &mut Raw) {
    while client.stream.try_write(b"x").is_ok() {
        tokio::time::sleep(BODY_TIMEOUT / 20).await;
    }
}

#[tokio::test]
async fn slow_upload_gets_408_and_cancels_the_upstream_request() {
    let gone = Arc::new(Notify::new());
    let signal = gone.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.head().await;
            conn.raw.rest().await.ok();
            signal.notify_one();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).listen(MIN_RATE).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
    soon(async {
        tokio::select! {
            biased;
            readable = client.stream.readable() => readable.unwrap(),
            () = async { loop {
                client.stream.try_write(b"x").unwrap();
                tokio::time::sleep(BODY_TIMEOUT / 20).await;
            } } => {}
        }
    })
    .await;
    let response = client.response(false).await;
    assert_eq!((response.status(), response.field("connection").as_deref()), (408, Some("close")));
    soon(gone.notified()).await;
    assert!(gateway.has_metric(r#"tidegate_rejected_total{cause="slow_upload"} 1"#));
    soon(trickle(&mut client)).await;
}

#[tokio::test]
async fn slow_upload_does_not_break_an_early_response_off() {
    let finish = Arc::new(Notify::new());
    let gate = finish.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let gate = gate.clone();
        async move {
            conn.head().await;
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf").await;
            gate.notified().await;
            conn.raw.send("full").await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).listen(MIN_RATE).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx").await;
    until(|| gateway.has_metric(r#"tidegate_rejected_total{cause="slow_upload"} 1"#)).await;
    finish.notify_one();
    let response = client.response(false).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "halffull"));
    soon(trickle(&mut client)).await;
}
