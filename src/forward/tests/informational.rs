//! Answers that only inform, and those that are none.

use super::*;

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";

#[tokio::test]
async fn as_many_hints_as_anybody_needs_come_before_an_answer_and_no_more() {
    for (count, status) in [(0, 200), (1, 200), (16, 200), (17, 502), (1000, 502)] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            while conn.request().await.is_some() {
                // Who has had enough of them closes.
                conn.raw.stream.write_all((HINT.repeat(count) + OK).as_bytes()).await.ok();
            }
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        // What its upstream did is no reason to send the client away.
        for _ in 0..2 {
            client.send(get("/")).await;
            for _ in 0..count.min(16) {
                assert_eq!(client.head().await.unwrap().status(), 103);
            }
            assert_eq!(client.response(false).await.status(), status, "{count}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_only_informs_has_no_body() {
    for (field, status) in
        [("Content-Length: 0\r\n", 200), ("Content-Length: 5\r\n", 502), ("Transfer-Encoding: chunked\r\n", 502)]
    {
        for inform in [100, 103, 199] {
            let origin = Origin::start(move |mut conn: OriginConnection| async move {
                conn.request().await;
                conn.raw.send(format!("HTTP/1.1 {inform} I\r\n{field}\r\n{OK}")).await;
                conn.raw.rest().await.ok();
            })
            .await;
            let gateway = Settings::to(origin.address).start();
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            if status == 200 && inform != 100 {
                let hint = client.head().await.unwrap();
                assert_eq!((hint.status(), hint.field("content-length")), (inform, None));
            }
            assert_eq!(client.response(false).await.status(), status, "{inform} {field}");
        }
    }
}

#[tokio::test]
async fn an_origin_that_only_informs_gives_no_answer() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
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
async fn a_hint_reaches_its_client_before_the_answer_without_what_was_for_one_connection() {
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let wait = Arc::clone(&wait);
        async move {
            conn.request().await;
            conn.raw.send("HTTP/1.1 103 Soon\r\nLink: </a>\r\nLink: </b>\r\nConnection: x\r\nX: 1\r\n\r\n").await;
            wait.notified().await;
            conn.raw.send(format!("HTTP/1.1 102 Processing\r\n\r\n{OK}")).await;
            conn.raw.rest().await.ok();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    let hint = client.head().await.unwrap();
    assert_eq!((hint.start.as_str(), hint.field("link").as_deref()), ("HTTP/1.1 103 Soon", Some("</a> | </b>")));
    assert_eq!((hint.field("connection"), hint.field("x"), hint.fields.len()), (None, None, 2));
    go_on.notify_one();
    assert_eq!(client.head().await.unwrap().status(), 102);
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn a_client_of_http_1_0_is_told_the_answer_alone() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(format!("{HINT}{OK}")).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    assert_eq!(gateway.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await.status(), 200);
}

#[tokio::test]
async fn hints_and_the_question_for_a_body_do_not_mix() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send(format!("{HINT}HTTP/1.1 100 Continue\r\n\r\n{HINT}")).await;
        conn.raw.exactly(4).await.unwrap();
        conn.raw.send(format!("{HINT}{OK}")).await;
        conn.raw.rest().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    let mut asked = Vec::new();
    while asked.len() < 3 {
        asked.push(client.head().await.unwrap().status());
    }
    asked.sort_unstable();
    assert_eq!(asked, [100, 103, 103]);
    client.send("body").await;
    assert_eq!(client.head().await.unwrap().status(), 103);
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn hints_that_nobody_could_need_are_let_go() {
    let large = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(20_000));
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let large = large.repeat(3);
        async move {
            conn.request().await;
            conn.raw.send(format!("{large}{HINT}{OK}")).await;
            conn.raw.rest().await.ok();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    let lengths =
        [client.head().await.unwrap(), client.head().await.unwrap()].map(|hint| hint.field("link").unwrap().len());
    assert_eq!(lengths, [20_000, 1]);
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn a_100_behind_an_answer_belongs_to_no_other() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {
            conn.raw.send(format!("{OK}HTTP/1.1 100 Continue\r\n\r\n")).await;
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
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
        conn.raw.rest().await.ok();
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
    let origin = Origin::with_response(
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
        let origin = Origin::with_response(answer).await;
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
