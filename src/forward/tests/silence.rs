//! Origins that fall silent in the middle of an answer, and those that only seem to.

use super::*;

const PATIENCE: Duration = Duration::from_secs(2);

fn impatient(address: SocketAddr) -> Settings {
    Settings { adjust: |upstream| upstream.body_timeout = PATIENCE, ..Settings::to(address) }
}

#[tokio::test]
async fn an_origin_that_falls_silent_in_the_middle_of_an_answer_breaks_it_off() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npart",
    ] {
        for version in ["1.1", "1.0"] {
            let gone = Arc::new(Notify::new());
            let signal = gone.clone();
            let origin = Origin::start(move |mut conn: OriginConnection| {
                let signal = signal.clone();
                async move {
                    conn.request().await;
                    conn.raw.send(answer).await;
                    conn.raw.closed().await.ok();
                    signal.notify_one();
                }
            })
            .await;
            let gateway = impatient(origin.address).start();
            let mut client = gateway.client().await;
            client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n")).await;
            until(|| !origin.requests().is_empty()).await;
            tokio::time::pause();
            let begin = tokio::time::Instant::now();
            assert!(client.try_message(false, true).await.is_err(), "{answer:?} {version}");
            assert!(begin.elapsed() < 2 * PATIENCE, "{answer:?} {version}: {:?}", begin.elapsed());
            soon(gone.notified()).await;
            tokio::time::resume();
            let series = r#"tidegate_upstream_broken_off_total{upstream="api",cause="silent"} 1"#;
            assert!(gateway.metrics.render().contains(series), "{answer:?} {version}");
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_for_a_while_is_no_silence_of_the_origin() {
    const LENGTH: usize = 32 << 20;
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
        // Not by the helper, which has a patience of its own.
        conn.raw.stream.write_all(&vec![7; LENGTH]).await.unwrap();
        conn.raw.closed().await.ok();
    })
    .await;
    let gateway = impatient(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    client.head().await.unwrap();
    tokio::time::pause();
    tokio::time::sleep(3 * PATIENCE).await;
    tokio::time::resume();
    assert_eq!(client.exactly(LENGTH).await.unwrap().len(), LENGTH);
}

#[tokio::test]
async fn an_origin_that_still_takes_an_upload_is_not_silent() {
    const PART: usize = 64 << 10;
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await;
        conn.raw.exactly(4 * PART).await.unwrap();
        conn.raw.send("ok").await;
    })
    .await;
    let gateway = impatient(origin.address).start();
    let mut client = gateway.client().await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 4 * PART)).await;
    client.head().await.unwrap();
    tokio::time::pause();
    for _ in 0..4 {
        tokio::time::sleep(PATIENCE / 2).await;
        client.send(vec![7; PART]).await;
    }
    assert_eq!(client.exactly(2).await.unwrap(), b"ok");
}
