//! Requests on idle connections that the origin closes at the same time.

use super::*;

/// Answers the first request of its first connection, and closes it after the head of the second. Later connections
/// stay open.
async fn close_first_connection(mut conn: OriginConnection, end: impl Fn(&OriginConnection)) {
    if conn.index > 0 {
        while conn.request().await.is_some() {
            conn.raw.send(OK).await;
        }
        return;
    }
    conn.request().await;
    conn.raw.send(OK).await;
    conn.head().await;
    end(&conn);
}

fn close(_: &OriginConnection) {}

fn reset(conn: &OriginConnection) {
    conn.raw.stream.set_zero_linger().unwrap();
}

/// Returns a client whose first request has a response.
async fn client_with_response(gateway: &Gateway) -> Raw {
    let mut client = gateway.client().await;
    assert_eq!(client.ask(get("/")).await.status(), 200);
    client
}

#[tokio::test]
async fn idempotent_request_is_repeated_if_its_connection_ends() {
    for end in [close, reset] {
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
            let origin = Origin::start(move |conn| close_first_connection(conn, end)).await;
            let gateway = Settings::to(origin.address).start();
            let mut client = client_with_response(&gateway).await;
            let response = client.ask(format!("{method} /again HTTP/1.1\r\nHost: a\r\nX-Own: yes\r\n\r\n")).await;
            assert_eq!(response.status(), 200, "{method}");
            let requests = origin.requests();
            assert_eq!((origin.connections(), requests.len()), (2, 3), "{method}");
            assert_eq!((&requests[1].start, &requests[1].fields), (&requests[2].start, &requests[2].fields));
            assert!(gateway.has_metric(r#"tidegate_upstream_repeats_total{upstream="api"} 1"#));
        }
    }
}

#[tokio::test]
async fn non_idempotent_request_is_not_repeated() {
    for end in [close, reset] {
        for method in ["POST", "PATCH", "ANYTHING"] {
            let origin = Origin::start(move |conn| close_first_connection(conn, end)).await;
            let gateway = Settings::to(origin.address).start();
            let mut client = client_with_response(&gateway).await;
            let response = client.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).await;
            assert_eq!((response.status(), response.field("x-not-sent")), (502, None), "{method}");
            assert_eq!((origin.connections(), origin.requests().len()), (1, 2), "{method}");
            assert_eq!(client.ask(get("/")).await.status(), 200);
        }
    }
}

#[tokio::test]
async fn request_with_unread_body_is_repeated() {
    let origin = Origin::start(|conn| close_first_connection(conn, close)).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client_with_response(&gateway).await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").await;
    until(|| origin.connections() == 2).await;
    client.send("body").await;
    assert_eq!(client.response(false).await.status(), 200);
    assert_eq!((origin.last_request().text().as_str(), origin.requests().len()), ("body", 3));
}

#[tokio::test]
async fn request_with_started_body_that_is_not_kept_is_not_repeated() {
    for rest in ["", "dy"] {
        let origin = Origin::start(|mut conn: OriginConnection| async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.head().await;
            conn.raw.exactly(2).await.unwrap();
        })
        .await;
        let gateway = Settings::to(origin.address).set("retry", "{ body: 1B }").start();
        let mut client = client_with_response(&gateway).await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo{rest}")).await;
        let response = client.response(false).await;
        assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
        assert_eq!((origin.connections(), origin.requests().len()), (1, 2));
    }
}

#[tokio::test]
async fn request_on_a_new_connection_is_not_repeated() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        if conn.index == 0 {
            conn.request().await;
            conn.raw.send(OK).await;
        }
        conn.request().await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client_with_response(&gateway).await;
    assert_eq!(client.ask(get("/")).await.status(), 502);
    assert_eq!((origin.connections(), origin.requests().len()), (2, 3));
    assert_eq!(client.ask(get("/")).await.status(), 502);
    assert_eq!((origin.connections(), origin.requests().len()), (3, 4));
}

#[tokio::test]
async fn started_or_late_response_is_not_repeated() {
    for (response, status) in [("HTTP/1.1 2", 502), ("HTTP/1.1 103 Early Hints\r\n\r\n", 502), ("", 504)] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.request().await;
            conn.raw.send(response).await;
            if response.is_empty() {
                conn.raw.closed().await.ok();
            }
        })
        .await;
        let gateway = Settings::to(origin.address).timeout("response", "3s").start();
        let mut client = client_with_response(&gateway).await;
        let rejection = client.ask(get("/")).await;
        assert_eq!((rejection.status(), rejection.field("x-not-sent")), (status, None), "{response:?}");
        assert_eq!((origin.connections(), origin.requests().len()), (1, 2), "{response:?}");
    }
}

/// Starts an origin that answers once, reads a second request, and closes all its sockets.
async fn dies_after_second_request() -> (SocketAddr, tokio::task::JoinHandle<Message>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gone = tokio::spawn(async move {
        let mut conn = Raw::new(listener.accept().await.unwrap().0);
        drop(listener);
        conn.request().await.unwrap();
        conn.send(OK).await;
        conn.request().await.unwrap()
    });
    (address, gone)
}

#[tokio::test]
async fn request_of_a_dead_target_is_repeated_on_the_next() {
    let ((address, gone), other) = (dies_after_second_request().await, Origin::with_response(OK).await);
    let gateway = Settings::to_all([address, other.address]).set("retry", "{ attempts: 1 }").start();
    let mut client = client_with_response(&gateway).await;
    for _ in 0..2 {
        assert_eq!(client.ask(get("/")).await.status(), 200);
    }
    assert_eq!((gone.await.unwrap().start, other.requests().len()), ("GET / HTTP/1.1".to_owned(), 2));
}

#[tokio::test]
async fn failed_repeat_counts_as_sent() {
    let (address, gone) = dies_after_second_request().await;
    let gateway = Settings::to(address).start();
    let mut client = client_with_response(&gateway).await;
    let response = client.ask(get("/")).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
    gone.await.unwrap();
}

#[tokio::test]
async fn idle_connection_is_closed_when_it_receives_bytes() {
    let (signal, mut gone) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison").await;
            conn.raw.rest().await.ok();
            signal.send(()).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    gateway.ask(get("/")).await;
    // The clock of a paused runtime stands still while it has work: no idle time passes.
    tokio::time::pause();
    for _ in 0..10_000_000 {
        if gone.try_recv().is_ok() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the connection stays open");
}

#[tokio::test]
async fn surplus_bytes_are_not_taken_for_the_next_response() {
    let surplus = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for (method, body) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
    ] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            while conn.request().await.is_some() {
                conn.raw.send(format!("{body}{surplus}")).await;
            }
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        for _ in 0..3 {
            let response = client.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            assert!(!response.text().contains("poison"), "{body:?}");
        }
        assert_eq!(origin.connections(), 3, "{body:?}");
    }
}
