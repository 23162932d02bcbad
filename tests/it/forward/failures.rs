//! Origins and clients that stop within a message.

use super::*;

/// Starts an origin that never responds. It notifies when a connection with a request is closed.
async fn silent_origin() -> (Origin, Arc<Notify>) {
    let gone = Arc::new(Notify::new());
    let signal = gone.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.closed().await.ok();
            signal.notify_one();
        }
    });
    (origin.await, gone)
}

#[tokio::test]
async fn response_timeout_cancels_the_upstream_request() {
    let (origin, gone) = silent_origin().await;
    let gateway = Settings::to(origin.address).timeout("response", "50ms").start();
    let response = gateway.ask(get("/")).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (504, None));
    soon(gone.notified()).await;
}

#[tokio::test]
async fn slow_upload_is_no_slow_origin() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).timeout("response", "2s").start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n").await;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.send("x").await;
    }
    assert_eq!(client.response(false).await.status(), 200);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nx").await;
    assert_eq!(client.response(false).await.status(), 408);
}

#[tokio::test]
async fn disconnect_of_the_client_cancels_the_request() {
    let (origin, gone) = silent_origin().await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    until(|| !origin.requests().is_empty()).await;
    drop(client);
    soon(gone.notified()).await;
}

#[tokio::test]
async fn dead_origin_breaks_the_response_off() {
    for (response, version) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", "1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "1.0"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nparx", "1.0"),
    ] {
        let head_arrived = Arc::new(Notify::new());
        let dies = head_arrived.clone();
        let origin = Origin::start(move |mut conn: OriginConnection| {
            let dies = dies.clone();
            async move {
                conn.request().await;
                conn.raw.send(response).await;
                dies.notified().await;
            }
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n")).await;
        let mut message = client.head().await.unwrap();
        head_arrived.notify_one();
        assert!(client.body(&mut message, false, true).await.is_err(), "{response:?} {version}");
    }
}

#[tokio::test]
async fn dead_origin_during_a_request_is_a_502() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.exactly(4).await.unwrap();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart").await;
    let response = client.response(false).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
}

#[tokio::test]
async fn malformed_body_is_a_400() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nno size\r\n";
    assert_eq!(gateway.ask(request).await.status(), 400);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
}

/// The `timeouts.idle` of the upstream.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

fn with_idle_timeout(address: SocketAddr) -> Settings {
    Settings::to(address).timeout("idle", "2s")
}

#[tokio::test]
async fn silent_origin_breaks_the_response_off() {
    for response in [
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
                    conn.raw.send(response).await;
                    conn.raw.closed().await.ok();
                    signal.notify_one();
                }
            })
            .await;
            let gateway = with_idle_timeout(origin.address).start();
            let mut client = gateway.client().await;
            client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n")).await;
            let mut message = client.head().await.unwrap();
            // Virtual time passes only here. While a socket is awaited, it could pass before the socket is ready.
            tokio::time::pause();
            tokio::time::sleep(2 * BODY_TIMEOUT).await;
            tokio::time::resume();
            assert!(client.body(&mut message, false, true).await.is_err(), "{response:?} {version}");
            soon(gone.notified()).await;
            let series = r#"tidegate_upstream_broken_off_total{upstream="api",cause="silent"} 1"#;
            assert!(gateway.has_metric(series), "{response:?} {version}");
        }
    }
}

#[tokio::test]
async fn client_that_stops_reading_is_no_silent_origin() {
    const LENGTH: usize = 32 << 20;
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
        // Not with `send`, which has a timeout.
        conn.raw.stream.write_all(&vec![7; LENGTH]).await.unwrap();
        conn.raw.closed().await.ok();
    })
    .await;
    let gateway = with_idle_timeout(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    client.head().await.unwrap();
    tokio::time::pause();
    tokio::time::sleep(3 * BODY_TIMEOUT).await;
    tokio::time::resume();
    assert_eq!(client.exactly(LENGTH).await.unwrap().len(), LENGTH);
}

#[tokio::test]
async fn origin_that_reads_an_upload_is_not_silent() {
    const PART: usize = 64 << 10;
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await;
        conn.raw.exactly(4 * PART).await.unwrap();
        conn.raw.send("ok").await;
    })
    .await;
    let gateway = with_idle_timeout(origin.address).start();
    let mut client = gateway.client().await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 4 * PART)).await;
    client.head().await.unwrap();
    tokio::time::pause();
    for _ in 0..4 {
        tokio::time::sleep(BODY_TIMEOUT / 2).await;
        client.send(vec![7; PART]).await;
    }
    assert_eq!(client.exactly(2).await.unwrap(), b"ok");
}
