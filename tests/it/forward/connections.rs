//! Connections are reused, and requests are sent once.

use super::*;

#[tokio::test]
async fn connections_are_reused() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for _ in 0..10 {
        client.ask(get("/")).await;
    }
    gateway.ask(get("/")).await;
    assert_eq!((origin.connections(), origin.requests().len()), (1, 11));
    assert!(gateway.has_metric(r#"tidegate_upstream_requests_total{upstream="api",outcome="answered"} 11"#));
}

#[tokio::test]
async fn closed_idle_connection_is_replaced_without_a_repeat() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(OK).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for _ in 0..20 {
        let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(client.ask(request).await.status(), 200);
    }
    assert_eq!((origin.connections(), origin.requests().len()), (20, 20));
}

#[tokio::test]
async fn unread_response_prevents_reuse_of_its_connection() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart").await;
        conn.raw.closed().await.ok();
        conn.raw.send("never").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    for _ in 0..2 {
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        client.head().await.unwrap();
        assert_eq!(client.exactly(4).await.unwrap(), b"part");
    }
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn unreachable_upstream_is_a_502_and_not_sent() {
    let gateway = Settings::to(Origin::closed_port()).start();
    let response = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!((response.status(), response.field("x-not-sent").as_deref()), (502, Some("yes")));
    assert!(gateway.has_metric(r#"outcome="unreachable"} 1"#));
}

#[tokio::test]
async fn next_target_replaces_an_unreachable_one() {
    let (one, two) = (Origin::with_response(OK).await, Origin::with_response(OK).await);
    let targets = [one.address, Origin::closed_port(), two.address];
    let gateway = Settings::to_all(targets).start();
    for _ in 0..6 {
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
    }
    assert_eq!((one.requests().len(), two.requests().len()), (3, 3));
}

#[tokio::test]
async fn idle_connections_are_closed_before_servers_close_them() {
    let (signal, mut gone) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.send(OK).await;
            conn.raw.closed().await.unwrap();
            signal.send(()).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    gateway.ask(get("/")).await;
    // Without a pause while the origin waits: an idle runtime would advance the clock before the kernel delivers the close.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(gone.try_recv().is_err(), "closed within 2 s");
    tokio::time::advance(Duration::from_secs(3)).await;
    tokio::time::resume();
    soon(gone.recv()).await.expect("closed within 5 s");
}
