//! Many concurrent requests on few connections.

use super::*;

#[tokio::test]
async fn requests_share_a_connection_until_its_streams_run_out() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (opened, mut builder) = (gate.clone(), Builder::new());
    builder.max_concurrent_streams(3);
    let origin = H2Origin::with(builder, move |request: OriginRequest| {
        let opened = opened.clone();
        async move {
            opened.acquire().await.unwrap().forget();
            request.respond_with("ok").await;
        }
    })
    .await;
    let gateway = origin.gateway();
    let mut clients = Vec::new();
    for _ in 0..7 {
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        clients.push(client);
    }
    until(|| origin.requests() == 7).await;
    assert_eq!(origin.connections(), 3);
    gate.add_permits(7);
    for client in &mut clients {
        assert_eq!(client.response(false).await.status(), 200);
    }
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = gate.clone();
    let origin = H2Origin::start(move |request: OriginRequest| {
        let opened = opened.clone();
        async move {
            opened.acquire().await.unwrap().forget();
            request.respond_with("ok").await;
        }
    })
    .await;
    let gateway = to(origin.address).set("max_connections", "1").set("queue_timeout", "1m").start();
    let (mut first, mut second) = (gateway.client().await, gateway.client().await);
    first.send(get("/")).await;
    until(|| origin.requests() == 1).await;
    second.send(get("/")).await;
    until(|| gateway.has_metric(r#"tidegate_upstream_waiting{upstream="api"} 1"#)).await;
    assert_eq!(origin.requests(), 1);
    gate.add_permits(2);
    assert_eq!(first.response(false).await.status(), 200);
    assert_eq!(second.response(false).await.status(), 200);
    assert_eq!((origin.requests(), origin.connections()), (2, 1));
}

#[tokio::test]
async fn unread_response_delays_no_other_request() {
    let origin = H2Origin::start(|mut request| async move {
        let mut stream = request.respond.send_response(Response::new(()), false).unwrap();
        let mut left = if request.head.uri.path() == "/small" { 100_000 } else { 64 << 20 };
        while left > 0 {
            stream.reserve_capacity(left.min(16 * 1024));
            let Some(Ok(some)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
            let some = some.min(left);
            left -= some;
            if stream.send_data(Bytes::from(vec![b'x'; some]), left == 0).is_err() {
                return;
            }
        }
    })
    .await;
    let gateway = origin.gateway();
    // All streams of the connection but one are blocked by clients that do not read.
    let mut blocked = Vec::new();
    for _ in 0..99 {
        let mut client = gateway.client().await;
        client.send(get("/large")).await;
        blocked.push(client);
    }
    until(|| origin.requests() == 99).await;
    let mut client = gateway.client().await;
    for _ in 0..20 {
        let response = client.ask(get("/small")).await;
        assert_eq!((response.status(), response.body.len()), (200, 100_000));
    }
    assert_eq!(origin.connections(), 1);
    for mut client in blocked {
        assert_eq!(client.head().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn both_directions_stream_independently() {
    let origin = H2Origin::start(|mut request| async move {
        let mut stream = request.respond.send_response(Response::new(()), false).unwrap();
        while let Some(Ok(data)) = request.body.data().await {
            request.body.flow_control().release_capacity(data.len()).unwrap();
            stream.send_data(data, false).unwrap();
        }
        stream.send_data(Bytes::from("end"), true).unwrap();
    })
    .await;
    let gateway = origin.gateway();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    for word in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{word}\r\n", word.len())).await;
        assert_eq!(client.chunk().await.unwrap(), word.as_bytes());
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.chunk().await.unwrap(), b"end");
    assert_eq!(client.chunk().await.unwrap(), b"");
    assert_eq!(client.line().await.unwrap(), "");
    assert_eq!(client.ask(chunked("more")).await.text(), "moreend");
}

/// Regression test: the wait for the 100 was part of the response time, and such uploads got a 504.
#[tokio::test]
async fn response_time_counts_from_the_request_for_the_body() {
    let most = Duration::from_millis(350);
    for requests_body in [true, false] {
        let origin = H2Origin::start(move |mut request| async move {
            if requests_body {
                tokio::time::sleep(most).await;
                let response = Response::builder().status(100).body(()).unwrap();
                request.respond.send_informational(response).unwrap();
            }
            request.read_all().await.ok();
            tokio::time::sleep(most).await;
            request.respond_with("ok").await;
        })
        .await;
        let gateway = to(origin.address).timeout("response", "600ms").start();
        let mut client = gateway.client().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
        assert_eq!(client.response(false).await.status(), 100);
        client.send("body").await;
        assert_eq!(client.response(false).await.status(), 200, "{requests_body}");
    }
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let origin = H2Origin::with_ok().await;
    let gateway = origin.gateway();
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    let connections = |count| {
        let series = format!(r#"tidegate_upstream_connections{{upstream="api"}} {count}"#);
        move |gateway: &Gateway| gateway.has_line(&series)
    };
    assert!(connections(1)(&gateway));
    tokio::time::pause();
    until_within(Duration::from_secs(120), || connections(0)(&gateway)).await;
    tokio::time::resume();
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(origin.connections(), 2);
}
