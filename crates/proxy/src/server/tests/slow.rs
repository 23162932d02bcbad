//! Clients that are slow, and clients that have closed unnoticed.

use super::*;

fn rejected(running: &Running, cause: &str) -> bool {
    running.metrics.render().contains(&format!("tidegate_rejected_total{{cause=\"{cause}\"}} 1"))
}

/// Responds with more bytes than all buffers on the way to the client hold.
async fn endless(_: Request<RequestBody>, _: SocketAddr) -> Response<Full<Bytes>> {
    Response::new(Full::from(vec![b'x'; 64 << 20]))
}

async fn never(_: Request<RequestBody>, _: SocketAddr) -> Response<Full<Bytes>> {
    std::future::pending().await
}

#[tokio::test]
async fn client_that_does_not_read_its_response_is_reset() {
    let server = start(&Listen { body_timeout: Duration::from_millis(200), ..listen() }, endless);
    let mut client = Raw::connect(server.address).await;
    client.send(get("/")).await;
    until(|| rejected(&server, "slow_reader")).await;
    until(|| server.metrics.render().contains("tidegate_connections 0")).await;
    assert_eq!(client.rest().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn slow_reader_above_the_minimum_rate_gets_all_bytes() {
    let server = start(&Listen { body_timeout: Duration::from_secs(2), ..listen() }, endless);
    let mut client = Raw::connect(server.address).await;
    client.send(get("/")).await;
    let (mut total, mut room) = (0, vec![0; 4 << 20]);
    while total < 64 << 20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        total += soon(tokio::io::AsyncReadExt::read(&mut client.stream, &mut room)).await.unwrap();
    }
    assert!(!rejected(&server, "slow_reader"));
}

/// Regression test: the end of a connection was not noticed behind a byte of the next request.
#[tokio::test]
async fn client_close_is_noticed_behind_pipelined_bytes() {
    for ahead in [1, 40_000] {
        let server = start(&Listen { header_timeout: Duration::from_millis(100), ..listen() }, never);
        let mut client = Raw::connect(server.address).await;
        client.send(get("/")).await;
        until(|| server.metrics.render().contains("tidegate_connections 1")).await;
        client.send("G".repeat(ahead)).await;
        drop(client);
        until(|| server.metrics.render().contains("tidegate_connections 0")).await;
    }
}

#[tokio::test]
async fn client_close_is_noticed_behind_an_unread_body() {
    let server = start(
        &Listen { header_timeout: Duration::from_millis(100), ..listen() },
        |request: Request<RequestBody>, _| async {
            let _unread = request;
            std::future::pending::<Response<Full<Bytes>>>().await
        },
    );
    let mut client = Raw::connect(server.address).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nbegin").await;
    until(|| server.metrics.render().contains("tidegate_connections 1")).await;
    drop(client);
    until(|| server.metrics.render().contains("tidegate_connections 0")).await;
}

#[tokio::test]
async fn unread_upload_is_not_timed() {
    let body_timeout = Duration::from_millis(50);
    let server = start(&Listen { body_timeout, ..listen() }, move |request, peer| async move {
        tokio::time::sleep(body_timeout * 6).await;
        describe(request, peer).await
    });
    let mut client = Raw::connect(server.address).await;
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789").await;
    assert_eq!(client.response(false).await.text(), "POST /x");
    assert!(!rejected(&server, "slow_upload"));
}

#[tokio::test]
async fn stalled_upload_fails_and_closes_the_connection() {
    let server = start(
        &Listen { body_timeout: Duration::from_millis(100), ..listen() },
        |request: Request<RequestBody>, _| async {
            let read = request.into_body().collect().await;
            let error = read.expect_err("the body is incomplete").downcast::<io::Error>().expect("an I/O error");
            Response::new(Full::<Bytes>::from(error.kind().to_string()))
        },
    );
    let mut client = Raw::connect(server.address).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234").await;
    let response = client.response(false).await;
    assert_eq!((response.text().as_str(), response.field("connection").as_deref()), ("timed out", Some("close")));
    assert!(rejected(&server, "slow_upload"));
    // The missing bytes of the body arrive late, and must not be read as a request.
    client.send("56789").await;
    client.send(get("/smuggled")).await;
    assert_eq!(client.rest().await.unwrap_or_default(), b"");
}

#[tokio::test]
async fn drain_deadline_ends_stalled_clients() {
    let server = start(&listen(), |request: Request<RequestBody>, peer| async move {
        match request.uri().path() {
            "/upload" => describe(request, peer).await,
            _ => endless(request, peer).await,
        }
    });
    let mut clients = Vec::new();
    for start in ["P", "GET", "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx", &get("/")] {
        let mut client = Raw::connect(server.address).await;
        client.send(start).await;
        clients.push(client);
    }
    until(|| server.metrics.render().contains("tidegate_connections 4")).await;
    server.trigger.start(Duration::from_millis(100));
    soon(server.serving).await.unwrap().unwrap();
}
