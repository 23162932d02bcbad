//! Origins and clients that stop in the middle.

use super::*;

#[tokio::test]
async fn an_origin_that_is_slow_to_answer_is_given_up_and_its_request_cancelled() {
    let gone = Arc::new(Notify::new());
    let signal = gone.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.closed().await.ok();
            signal.notify_one();
        }
    })
    .await;
    let gateway = Settings { response_timeout: Duration::from_millis(50), ..Settings::to(origin.address) }.start();
    let answer = gateway.ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (504, None));
    soon(gone.notified()).await;
}

#[tokio::test]
async fn a_slow_upload_is_not_taken_for_a_slow_origin() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings { response_timeout: Duration::from_millis(600), ..Settings::to(origin.address) }.start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n").await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.send("x").await;
    }
    assert_eq!(client.response(false).await.status(), 200);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nx").await;
    assert_eq!(client.response(false).await.status(), 408);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_with_it() {
    let gone = Arc::new(Notify::new());
    let signal = gone.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let signal = signal.clone();
        async move {
            conn.request().await;
            conn.raw.closed().await.ok();
            signal.notify_one();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    until(|| !origin.requests().is_empty()).await;
    drop(client);
    soon(gone.notified()).await;
}

#[tokio::test]
async fn an_origin_that_dies_in_the_middle_of_an_answer_breaks_it_off_for_every_client() {
    for (answer, version) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", "1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "1.0"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nparx", "1.0"),
    ] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            conn.request().await;
            conn.raw.send(answer).await;
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n")).await;
        assert!(client.try_message(false, true).await.is_err(), "{answer:?} {version}");
    }
}

#[tokio::test]
async fn an_origin_that_dies_in_the_middle_of_a_request_is_a_bad_gateway() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.exactly(4).await.unwrap();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart").await;
    let answer = client.response(false).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
}

#[tokio::test]
async fn a_body_that_is_none_is_the_clients_mistake() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nno size\r\n";
    assert_eq!(gateway.ask(request).await.status(), 400);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
}
