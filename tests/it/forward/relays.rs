//! Large bodies of known length. Between plaintext HTTP/1 connections the kernel moves them; all others are copied.

use super::http2_client::{H2Body, http2};
use super::*;

/// The lengths around the bounds of a relay: it begins at 64 KiB and moves at most 512 KiB at a time.
const LENGTHS: [usize; 7] =
    [(64 << 10) - 1, 64 << 10, (67 << 10) + 1, 512 << 10, (513 << 10) + 1, 1 << 20, (3 << 20) + 7];

/// A body without zeros, whose pages and buffers all differ: it repeats a block with a prime length.
fn pattern(length: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..4093_usize).map(|at| (at % 251 + at / 251).to_le_bytes()[0] | 1).collect();
    let mut body = block.repeat(length.div_ceil(block.len()));
    body.truncate(length);
    body
}

fn head(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

/// Starts an origin that checks the body of each request, and responds with a body of the length in the path.
async fn origin_of_patterns() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.raw.request().await {
            let length: usize = request.start.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            assert!(request.body.is_empty() || request.body == pattern(length));
            conn.raw.stream.write_all(&[head(length).into_bytes(), pattern(length)].concat()).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn large_bodies_arrive_unchanged() {
    let origin = origin_of_patterns().await;
    let gateway = Settings::to(origin.address).start();
    let (mut client, mut sender) = (gateway.client().await, http2(gateway.address).await);
    for length in LENGTHS {
        assert!(client.ask(get(&format!("/{length}"))).await.body == pattern(length), "{length}");
        client.send(format!("POST /{length} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
        client.send(pattern(length)).await;
        assert!(client.response(false).await.body == pattern(length), "{length}");
        let body = H2Body::new(Full::from(pattern(length)));
        let request = Request::post(format!("http://a/{length}")).body(body).unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        assert!(soon(response.into_body().collect()).await.unwrap().to_bytes() == pattern(length), "{length}, HTTP/2");
    }
    assert_eq!(origin.connections(), 1, "the connection is reused after each body");
}

/// Regression test for readers of stand-ins: the bodies are read ahead of an HTTP/2 upstream.
#[tokio::test]
async fn large_upload_reaches_an_http2_origin_unchanged() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Settings::to(listener.local_addr().unwrap()).set("protocol", "http2").start();
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let (mut body, mut all) = (request.into_body(), Vec::new());
                while let Some(data) = body.data().await {
                    let data = data.unwrap();
                    body.flow_control().release_capacity(data.len()).unwrap();
                    all.extend_from_slice(&data);
                }
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                stream.send_data(all.into(), true).unwrap();
            });
        }
    });
    let mut client = gateway.client().await;
    for length in LENGTHS {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
        client.send(pattern(length)).await;
        assert!(client.response(false).await.body == pattern(length), "{length}");
    }
}

#[tokio::test]
async fn more_large_bodies_than_pipes_arrive_unchanged() {
    const LENGTH: usize = 1 << 20;
    let origin = origin_of_patterns().await;
    let gateway = Settings::to(origin.address).start();
    let mut clients = Vec::new();
    // No client reads more than the head, so that all bodies are in flight at the same time.
    for _ in 0..80 {
        let mut client = gateway.client().await;
        client.send(get(&format!("/{LENGTH}"))).await;
        client.head().await.unwrap();
        clients.push(client);
    }
    for mut client in clients {
        assert!(client.exactly(LENGTH).await.unwrap() == pattern(LENGTH));
    }
}

#[tokio::test]
async fn incomplete_large_response_is_broken_off() {
    for resets in [false, true] {
        let dies = Arc::new(Notify::new());
        let signal = dies.clone();
        let origin = Origin::start(move |mut conn: OriginConnection| {
            let signal = signal.clone();
            async move {
                conn.request().await;
                conn.raw.send(head(1 << 20)).await;
                conn.raw.stream.write_all(&pattern(300 << 10)).await.unwrap();
                signal.notified().await;
                if resets {
                    conn.raw.stream.set_zero_linger().unwrap();
                }
            }
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        client.head().await.unwrap();
        assert!(client.exactly(300 << 10).await.unwrap() == pattern(300 << 10));
        dies.notify_one();
        assert!(client.rest().await.is_err(), "a reset");
        until(|| gateway.has_metric(r#"tidegate_upstream_broken_off_total{upstream="api",cause="closed"} 1"#)).await;
    }
}

#[tokio::test]
async fn incomplete_large_upload_is_not_completed() {
    let (signal, mut received) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.head().await;
            signal.send(conn.raw.take_all().await.map_or(0, |count| count)).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 1 << 20)).await;
    client.send(pattern(300 << 10)).await;
    until(|| !origin.requests().is_empty()).await;
    client.stream.shutdown().await.unwrap();
    let count = soon(received.recv()).await.unwrap();
    assert!(count <= 300 << 10, "{count}");
    assert!(client.try_message(false, true).await.map_or(400, |message| message.status()) >= 400);
}

#[tokio::test]
async fn silent_origin_ends_a_large_response() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(head(1 << 20)).await;
        conn.raw.stream.write_all(&pattern(300 << 10)).await.unwrap();
        conn.raw.closed().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).timeout("idle", "3s").start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    client.head().await.unwrap();
    assert!(client.exactly(300 << 10).await.unwrap() == pattern(300 << 10));
    assert!(client.rest().await.is_err());
    assert!(gateway.has_metric(r#"tidegate_upstream_broken_off_total{upstream="api",cause="silent"} 1"#));
}

#[tokio::test]
async fn client_that_stops_reading_a_large_response_is_reset() {
    let origin = origin_of_patterns().await;
    let gateway = Settings::to(origin.address).listen(", body_timeout: 300ms").start();
    let mut client = gateway.client().await;
    client.send(get(&format!("/{}", 64 << 20))).await;
    client.head().await.unwrap();
    until(|| gateway.has_metric(r#"tidegate_rejected_total{cause="slow_reader"} 1"#)).await;
    assert!(client.exactly(64 << 20).await.is_err());
}

#[tokio::test]
async fn slow_large_upload_gets_408() {
    let origin = origin_of_patterns().await;
    let gateway = Settings::to(origin.address).listen(", body_timeout: 300ms").start();
    let mut client = gateway.client().await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 1 << 20)).await;
    client.send(pattern(100 << 10)).await;
    assert_eq!(client.response(false).await.status(), 408);
}
