//! `Expect: 100-continue` is between the client and the origin.

use super::*;

#[tokio::test]
async fn a_body_is_asked_for_by_the_origin_before_the_client_sends_it() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        let head = conn.head().await.unwrap();
        assert_eq!(head.field("expect").as_deref(), Some("100-continue"));
        // Nothing but the head has come, and nothing will until it is asked for.
        let early = tokio::time::timeout(Duration::from_millis(100), conn.raw.exactly(1)).await;
        assert!(early.is_err());
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(conn.raw.exactly(4).await.unwrap(), b"body");
        conn.raw.send(OK).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.response(false).await.status(), 100);
    client.send("body").await;
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn an_origin_that_refuses_a_body_is_not_sent_it() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        conn.raw.closed().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!((answer.status(), answer.text().as_str()), (413, "big"));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn a_client_of_http_1_0_expects_nothing() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let request = "POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody";
    assert_eq!(gateway.ask(request).await.status(), 200);
    assert_eq!((origin.last_request().field("expect"), origin.last_request().text().as_str()), (None, "body"));
}
