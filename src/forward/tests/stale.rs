//! Kept connections that the origin closes just when the next request is sent on them.

use super::*;

/// Answers the first request of its first connection, and ends it when the next one is there; later connections last.
async fn ends_its_first(mut conn: OriginConnection, end: impl Fn(&OriginConnection)) {
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

/// A client whose first request has been answered.
async fn client_of(gateway: &Gateway) -> Raw {
    let mut client = gateway.client().await;
    assert_eq!(client.ask(get("/")).await.status(), 200);
    client
}

#[tokio::test]
async fn what_may_arrive_twice_is_sent_once_more_if_a_kept_connection_ends_before_it_answers() {
    for end in [close, reset] {
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
            let origin = Origin::start(move |conn| ends_its_first(conn, end)).await;
            let gateway = Settings::to(origin.address).start();
            let mut client = client_of(&gateway).await;
            let answer = client.ask(format!("{method} /again HTTP/1.1\r\nHost: a\r\nX-Kept: yes\r\n\r\n")).await;
            assert_eq!(answer.status(), 200, "{method}");
            let requests = origin.requests();
            assert_eq!((origin.connections(), requests.len()), (2, 3), "{method}");
            assert_eq!((&requests[1].start, &requests[1].fields), (&requests[2].start, &requests[2].fields));
            assert!(gateway.metrics.render().contains(r#"tidegate_upstream_repeats_total{upstream="api"} 1"#));
        }
    }
}

#[tokio::test]
async fn what_may_not_arrive_twice_is_sent_once() {
    for end in [close, reset] {
        for method in ["POST", "PATCH", "ANYTHING"] {
            let origin = Origin::start(move |conn| ends_its_first(conn, end)).await;
            let gateway = Settings::to(origin.address).start();
            let mut client = client_of(&gateway).await;
            let answer = client.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).await;
            assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None), "{method}");
            assert_eq!((origin.connections(), origin.requests().len()), (1, 2), "{method}");
            assert_eq!(client.ask(get("/")).await.status(), 200);
        }
    }
}

#[tokio::test]
async fn a_body_of_which_nothing_was_taken_is_sent_on_the_next_connection() {
    let origin = Origin::start(|conn| ends_its_first(conn, close)).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client_of(&gateway).await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").await;
    until(|| origin.connections() == 2).await;
    client.send("body").await;
    assert_eq!(client.response(false).await.status(), 200);
    assert_eq!((origin.last_request().text().as_str(), origin.requests().len()), ("body", 3));
}

#[tokio::test]
async fn a_body_that_has_begun_is_not_sent_again() {
    for rest in ["", "dy"] {
        let origin = Origin::start(|mut conn: OriginConnection| async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.head().await;
            conn.raw.exactly(2).await.unwrap();
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = client_of(&gateway).await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo{rest}")).await;
        let answer = client.response(false).await;
        assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
        assert_eq!((origin.connections(), origin.requests().len()), (1, 2));
    }
}

#[tokio::test]
async fn a_new_connection_that_ends_unanswered_is_the_last() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        if conn.index == 0 {
            conn.request().await;
            conn.raw.send(OK).await;
        }
        conn.request().await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = client_of(&gateway).await;
    assert_eq!(client.ask(get("/")).await.status(), 502);
    assert_eq!((origin.connections(), origin.requests().len()), (2, 3));
    assert_eq!(client.ask(get("/")).await.status(), 502);
    assert_eq!((origin.connections(), origin.requests().len()), (3, 4));
}

#[tokio::test]
async fn an_answer_that_has_begun_or_does_not_come_in_time_is_no_reason_to_ask_again() {
    for (answer, status) in [("HTTP/1.1 2", 502), ("HTTP/1.1 103 Early Hints\r\n\r\n", 502), ("", 504)] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.request().await;
            conn.raw.send(answer).await;
            if answer.is_empty() {
                conn.raw.closed().await.ok();
            }
        })
        .await;
        let gateway = Settings { response_timeout: Duration::from_millis(200), ..Settings::to(origin.address) }.start();
        let mut client = client_of(&gateway).await;
        let refusal = client.ask(get("/")).await;
        assert_eq!((refusal.status(), refusal.field("x-not-sent")), (status, None), "{answer:?}");
        assert_eq!((origin.connections(), origin.requests().len()), (1, 2), "{answer:?}");
    }
}

/// An origin that answers once, takes another request, and is gone with all that it has.
async fn goes_away() -> (SocketAddr, tokio::task::JoinHandle<Message>) {
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
async fn what_was_sent_to_a_target_that_is_gone_is_sent_to_the_next() {
    let ((address, gone), other) = (goes_away().await, Origin::with_response(OK).await);
    let gateway = Settings::targets(vec![target(address), target(other.address)]).start();
    let mut client = client_of(&gateway).await;
    for _ in 0..2 {
        assert_eq!(client.ask(get("/")).await.status(), 200);
    }
    assert_eq!((gone.await.unwrap().start, other.requests().len()), ("GET / HTTP/1.1".to_owned(), 2));
}

#[tokio::test]
async fn what_was_sent_once_and_could_not_be_sent_again_was_sent() {
    let (address, gone) = goes_away().await;
    let gateway = Settings::to(address).start();
    let mut client = client_of(&gateway).await;
    let answer = client.ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
    gone.await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_anything_comes_on_it() {
    let (signal, mut gone) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison").await;
            conn.raw.rest().await.ok();
            signal.send(tokio::time::Instant::now()).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    gateway.ask(get("/")).await;
    tokio::time::pause();
    let begin = tokio::time::Instant::now();
    let after = gone.recv().await.unwrap() - begin;
    assert!(after < Duration::from_secs(2), "closed after {after:?}");
}

#[tokio::test]
async fn what_comes_behind_an_answer_is_never_taken_for_the_next() {
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
            let answer = client.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            assert!(!answer.text().contains("poison"), "{body:?}");
        }
        assert_eq!(origin.connections(), 3, "{body:?}");
    }
}
