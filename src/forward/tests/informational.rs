//! Answers that only inform, and those that are none.

use super::*;

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";

#[tokio::test]
async fn as_many_hints_as_anybody_needs_come_before_an_answer_and_no_more() {
    for (count, status) in [(0, 200), (1, 200), (16, 200), (17, 502), (1000, 502)] {
        let origin = Origin::start(move |mut visit: Visit| async move {
            while visit.request().await.is_some() {
                // Who has had enough of them closes.
                visit.raw.stream.write_all((HINT.repeat(count) + OK).as_bytes()).await.ok();
            }
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        assert_eq!(client.ask(get("/")).await.status(), status, "{count}");
        // What its upstream did is no reason to send the client away.
        assert_eq!(client.ask(get("/")).await.status(), status, "{count}");
    }
}

#[tokio::test]
async fn an_answer_that_only_informs_has_no_body() {
    for (field, status) in
        [("Content-Length: 0\r\n", 200), ("Content-Length: 5\r\n", 502), ("Transfer-Encoding: chunked\r\n", 502)]
    {
        for inform in [100, 103, 199] {
            let origin = Origin::start(move |mut visit: Visit| async move {
                visit.request().await;
                visit.raw.send(format!("HTTP/1.1 {inform} I\r\n{field}\r\n{OK}")).await;
                visit.raw.rest().await.ok();
            })
            .await;
            let gateway = Settings::to(origin.address).start();
            assert_eq!(gateway.ask(get("/")).await.status(), status, "{inform} {field}");
        }
    }
}

#[tokio::test]
async fn an_origin_that_only_informs_gives_no_answer() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.head().await;
        visit.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for asked in 1..=2 {
        let answer = client.ask(get("/")).await;
        assert_eq!((answer.status(), answer.field("x-not-sent"), origin.requests().len()), (502, None, asked));
    }
}

#[tokio::test]
async fn a_100_behind_an_answer_belongs_to_no_other() {
    let origin = Origin::start(|mut visit: Visit| async move {
        while visit.request().await.is_some() {
            visit.raw.send(format!("{OK}HTTP/1.1 100 Continue\r\n\r\n")).await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for asked in 1..=3 {
        assert_eq!(client.ask(get("/")).await.status(), 200);
        assert_eq!(origin.connections(), asked);
    }
}

#[tokio::test]
async fn a_client_whose_answer_came_with_the_100_is_told_the_answer_alone() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.head().await;
        visit.raw.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
        visit.raw.rest().await.ok();
    })
    .await;
    let adjust: fn(&mut UpstreamSettings) = |api| api.body_timeout = Duration::from_millis(200);
    let gateway = Settings { adjust, ..Settings::to(origin.address) }.start();
    let mut client = gateway.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.exactly(2).await.unwrap(), b"ha");
    assert!(client.exactly(1).await.is_err());
}

#[tokio::test]
async fn an_answer_with_both_framings_is_read_by_its_chunks_and_its_connection_left() {
    let origin = Origin::saying(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for asked in 1..=2 {
        let answer = client.ask(get("/")).await;
        assert_eq!((answer.field("content-length"), answer.text().as_str()), (None, "ok"));
        assert_eq!(origin.connections(), asked);
    }
}

#[tokio::test]
async fn an_answer_that_has_no_body_is_told_without_one_whatever_its_origin_sends() {
    for (method, answer) in [
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nno"),
        ("GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nno"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"),
    ] {
        let origin = Origin::saying(answer).await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        for asked in 1..=2 {
            let told = client.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!((told.status(), told.body.len(), origin.connections()), (status, 0, asked), "{answer:?}");
            assert!(status != 204 || told.field("content-length").is_none(), "{answer:?}");
        }
    }
}
