//! Clients that send their bodies too slowly, and what becomes of their requests.

use super::*;

const BODY_TIMEOUT: Duration = Duration::from_millis(300);

fn strict() -> Listen {
    Listen { body_timeout: BODY_TIMEOUT, min_rate: 1000, ..listen() }
}

/// Sends a byte now and then until the connection is over.
async fn trickle(client: &mut Raw) {
    while client.stream.try_write(b"x").is_ok() {
        tokio::time::sleep(BODY_TIMEOUT / 20).await;
    }
}

#[tokio::test]
async fn an_upload_that_trickles_is_told_so_and_its_upstream_let_go() {
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
    let gateway = Settings::to(origin.address).start_at(&strict());
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
    let answer = client.response(false).await;
    assert_eq!((answer.status(), answer.field("connection").as_deref()), (408, Some("close")));
    soon(gone.notified()).await;
    assert!(gateway.metrics.render().contains(r#"tidegate_rejected_total{cause="slow_upload"} 1"#));
    soon(trickle(&mut client)).await;
}

#[tokio::test]
async fn an_upload_that_trickles_behind_its_answer_does_not_break_that_off() {
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
    let gateway = Settings::to(origin.address).start_at(&strict());
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx").await;
    until(|| gateway.metrics.render().contains(r#"tidegate_rejected_total{cause="slow_upload"} 1"#)).await;
    finish.notify_one();
    let answer = client.response(false).await;
    assert_eq!((answer.status(), answer.text().as_str()), (200, "halffull"));
    soon(trickle(&mut client)).await;
}
