//! Bodies and trailers are streamed in both directions.

use super::*;

#[tokio::test]
async fn trailers_are_forwarded_without_framing_fields() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {
            let fields = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Transfer-Encoding\r\n";
            conn.raw.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).await;
            conn.raw.send("2\r\nok\r\n0\r\nX-Sum: 7\r\nTransfer-Encoding: x\r\n\r\n").await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let response = gateway
        .ask(
            "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Sent, Host\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\nX-Sent: 1\r\nHost: evil\r\n\r\n",
        )
        .await;
    assert_eq!(response.field("trailer").as_deref(), Some("x-sum"));
    assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(origin.last_request().field("trailer").as_deref(), Some("x-sent"));
    assert_eq!(origin.last_request().trailers, [("x-sent".to_owned(), "1".to_owned())]);
    let plain = gateway.ask(get("/")).await;
    assert_eq!((plain.field("trailer"), plain.trailers.len()), (None, 0), "the client accepts no trailers");
}

#[tokio::test]
async fn fields_removed_from_the_head_are_removed_from_trailers() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).trust_clients().start();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n";
    for name in
        ["X-Forwarded-For", "X-Real-IP", "Proxy", "X_Real_IP", "x.sum", "Authorization", "X-HTTP-Method-Override"]
    {
        let announced = format!("{head}Trailer: {name}, X-Sum\r\n\r\n0\r\n{name}: 1\r\nX-Sum: 7\r\n\r\n");
        assert_eq!(gateway.ask(announced).await.status(), 200);
        assert_eq!(origin.last_request().trailers, [("x-sum".to_owned(), "7".to_owned())], "{name}");
        assert_eq!(origin.last_request().field("trailer").as_deref(), Some("x-sum"), "{name}");
    }
    let with_length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTrailer: X-Sum\r\n\r\nhi";
    assert_eq!(gateway.ask(with_length).await.status(), 200);
    assert_eq!(origin.last_request().field("trailer"), None, "a body of known length has no trailers");
}

#[tokio::test]
async fn body_is_streamed_chunk_by_chunk() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        loop {
            let chunk = conn.raw.chunk().await.unwrap();
            conn.raw.send(format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(&chunk))).await;
            if chunk.is_empty() {
                return;
            }
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.head().await.unwrap();
    for part in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{part}\r\n", part.len())).await;
        assert_eq!(client.chunk().await.unwrap(), part.as_bytes());
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.chunk().await.unwrap(), b"");
}

const LARGE: usize = 256 << 20;

/// Sends the request body back.
async fn mirror(mut conn: OriginConnection) {
    conn.raw.head().await.unwrap();
    conn.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")).await;
    let (mut reader, mut writer) = conn.raw.stream.split();
    tokio::io::copy(&mut (&mut reader).take(LARGE as u64), &mut writer).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_stream_in_both_directions_at_once() {
    let origin = Origin::start(mirror).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n")).await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    let (mut reader, mut writer) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        let part = vec![7; 1 << 20];
        for _ in 0..LARGE / part.len() {
            writer.write_all(&part).await.unwrap();
        }
        writer
    });
    let (mut buffer, mut read) = (vec![0; 1 << 20], 0);
    while read < LARGE {
        let count = reader.read(&mut buffer).await.unwrap();
        assert!(count > 0 && buffer[..count].iter().all(|byte| *byte == 7));
        read += count;
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn slow_reader_slows_its_origin_down() {
    let (stalled, mut result) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let stalled = stalled.clone();
        async move {
            conn.request().await;
            conn.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")).await;
            let part = vec![7; 1 << 16];
            let mut sent = 0;
            // All buffers are full once a write takes this long.
            let patience = Duration::from_millis(300);
            while let Ok(Ok(count)) = tokio::time::timeout(patience, conn.raw.stream.write(&part)).await {
                sent += count;
            }
            stalled.send(sent).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    client.head().await.unwrap();
    let sent = soon(result.recv()).await.unwrap();
    assert!(sent < LARGE / 4, "{sent} bytes were buffered");
    // The origin sends no more, so that the response breaks off.
    assert!(client.exactly(LARGE).await.is_err());
}

#[tokio::test]
async fn builtin_echo_returns_the_body_or_describes_the_request() {
    let gateway = Settings::with_targets(["builtin:echo".to_owned()]).start();
    let page = gateway.ask("GET /a?b HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n").await;
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!((&page["method"], &page["path"]), (&"GET".into(), &"/a?b".into()));
    assert_eq!((&page["headers"]["host"], &page["headers"]["authorization"]), (&"a".into(), &"***".into()));
    let echo = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!((echo.text().as_str(), echo.field("content-type").as_deref()), ("hi", Some("text/x")));
}
