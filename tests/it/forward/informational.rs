//! Informational responses (1xx), and responses without a body.

use tokio::net::TcpListener;

use super::http2_client::{H2Body, http2 as http2_client};
use super::*;
use crate::support::wire::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, fields};

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";

#[tokio::test]
async fn at_most_16_informational_responses_are_accepted() {
    for (count, status) in [(0, 200), (1, 200), (16, 200), (17, 502), (1000, 502)] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            while conn.request().await.is_some() {
                // Fails if the gateway closes the connection.
                conn.raw.stream.write_all((HINT.repeat(count) + OK).as_bytes()).await.ok();
            }
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        // A fault of the upstream does not close the client's connection.
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
async fn informational_response_with_a_body_is_a_502() {
    for (field, status) in
        [("Content-Length: 0\r\n", 200), ("Content-Length: 5\r\n", 502), ("Transfer-Encoding: chunked\r\n", 502)]
    {
        for code in [100, 103, 199] {
            let origin = Origin::start(move |mut conn: OriginConnection| async move {
                conn.request().await;
                conn.raw.send(format!("HTTP/1.1 {code} I\r\n{field}\r\n{OK}")).await;
                conn.raw.rest().await.ok();
            })
            .await;
            let gateway = Settings::to(origin.address).start();
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            if status == 200 && code != 100 {
                let hint = client.head().await.unwrap();
                assert_eq!((hint.status(), hint.field("content-length")), (code, None));
            }
            assert_eq!(client.response(false).await.status(), status, "{code} {field}");
        }
    }
}

#[tokio::test]
async fn end_after_an_informational_response_is_a_502() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for asked in 1..=2 {
        let response = client.ask(get("/")).await;
        assert_eq!((response.status(), response.field("x-not-sent"), origin.requests().len()), (502, None, asked));
    }
}

#[tokio::test]
async fn hint_is_forwarded_without_hop_by_hop_fields() {
    let proceed = Arc::new(Notify::new());
    let wait = Arc::clone(&proceed);
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
    proceed.notify_one();
    assert_eq!(client.head().await.unwrap().status(), 102);
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn http10_client_gets_no_informational_responses() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(format!("{HINT}{OK}")).await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    assert_eq!(gateway.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await.status(), 200);
}

#[tokio::test]
async fn hints_and_100_continue_combine() {
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
    let mut statuses = Vec::new();
    while statuses.len() < 3 {
        statuses.push(client.head().await.unwrap().status());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [100, 103, 103]);
    client.send("body").await;
    assert_eq!(client.head().await.unwrap().status(), 103);
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn hints_above_the_size_limit_are_dropped() {
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
async fn continue_after_a_response_is_not_used_for_the_next() {
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
async fn continue_is_dropped_if_the_response_follows_at_once() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
        conn.raw.rest().await.ok();
    })
    .await;
    let gateway = Settings::to(origin.address).timeout("idle", "200ms").start();
    let mut client = gateway.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.exactly(2).await.unwrap(), b"ha");
    assert!(client.exactly(1).await.is_err());
}

#[tokio::test]
async fn response_with_both_framings_uses_chunks_and_closes() {
    let origin = Origin::with_response(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for asked in 1..=2 {
        let response = client.ask(get("/")).await;
        assert_eq!((response.field("content-length"), response.text().as_str()), (None, "ok"));
        assert_eq!(origin.connections(), asked);
    }
}

#[tokio::test]
async fn body_of_a_bodiless_response_is_discarded() {
    for (method, response) in [
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nno"),
        ("GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nno"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"),
    ] {
        let origin = Origin::with_response(response).await;
        let gateway = Settings::to(origin.address).start();
        let mut client = gateway.client().await;
        for asked in 1..=2 {
            let forwarded = client.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            let status: u16 = response.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(
                (forwarded.status(), forwarded.body.len(), origin.connections()),
                (status, 0, asked),
                "{response:?}"
            );
            assert!(status != 204 || forwarded.field("content-length").is_none(), "{response:?}");
        }
    }
}

/// Regression test: HTTP/2 clients reset the stream of a 204 with `Content-Length` (RFC 9110 section 8.6).
#[tokio::test]
async fn content_length_of_a_204_is_removed() {
    for (status, length, forwarded) in [("204", "0", None), ("204", "5", None), ("304", "5", Some("5"))] {
        let http1 = Origin::start(move |mut conn: OriginConnection| async move {
            while conn.request().await.is_some() {
                conn.raw.send(format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n\r\n")).await;
            }
        })
        .await;
        let http2 = http2_origin(status, length).await;
        for (address, protocol) in [(http1.address, "http1"), (http2, "http2")] {
            let gateway = Settings::to(address).set("protocol", protocol).start();
            let response = gateway.client().await.ask(get("/")).await;
            assert_eq!(response.status().to_string(), status);
            assert_eq!(response.field("content-length").as_deref(), forwarded, "{status} {length} {protocol}");
            let request = Request::get("http://a/").body(H2Body::new(Full::default())).unwrap();
            let response = soon(http2_client(gateway.address).await.send_request(request)).await.unwrap();
            assert_eq!(response.status().as_str(), status);
            let field = response.headers().get("content-length").map(|value| value.to_str().unwrap());
            assert_eq!(field, forwarded, "{status} {length} {protocol}");
        }
    }
}

/// Starts an HTTP/2 origin that answers the first request of each connection.
async fn http2_origin(status: &'static str, length: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut conn = Frames::accept(stream, &[]).await;
            tokio::spawn(async move {
                while let Ok(frame) = conn.next().await {
                    if frame.kind == HEADERS {
                        let block = fields([(":status", status), ("content-length", length)]);
                        conn.frame(HEADERS, END_HEADERS | END_STREAM, frame.stream, &block).await;
                    }
                }
            });
        }
    });
    address
}

/// Regression test: a 426 lost its `Upgrade`, which it must have (RFC 9110 section 15.5.22).
#[tokio::test]
async fn upgrade_required_keeps_its_protocols() {
    let origin = Origin::with_response(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3, HTTP/1.1\r\nUpgrade: websocket\r\n\
         Connection: Upgrade, x\r\nX: 1\r\nContent-Length: 2\r\n\r\nno",
    )
    .await;
    let gateway = Settings::to(origin.address).start();
    for (request, connection) in [(get("/"), "upgrade"), ("GET / HTTP/1.0\r\n\r\n".to_owned(), "upgrade | close")] {
        let response = gateway.ask(request).await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (426, Some(connection)));
        assert_eq!(response.field("upgrade").as_deref(), Some("TLS/1.3, HTTP/1.1 | websocket"));
        assert_eq!((response.field("x"), response.text().as_str()), (None, "no"));
    }
    let request = Request::get("http://a/").body(H2Body::new(Full::default())).unwrap();
    let response = soon(http2_client(gateway.address).await.send_request(request)).await.unwrap();
    // HTTP/2 has no `Upgrade` (RFC 9113 section 8.6).
    assert_eq!((response.status().as_u16(), response.headers().get("upgrade")), (426, None));
}

#[tokio::test]
async fn bounds_of_response_heads_are_settings() {
    let lines = "x-a: b\r\n".repeat(149);
    let many = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nok");
    let large = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\nContent-Length: 2\r\n\r\nok", "x".repeat(100_000));
    let small = "HTTP/1.1 200 OK\r\nx-a: b\r\nContent-Length: 2\r\n\r\nok".to_owned();
    for (response, key, value, status) in [
        (&many, "max_fields", "100", 502),
        (&many, "max_fields", "150", 200),
        (&large, "max_field_bytes", "64KiB", 502),
        (&large, "max_field_bytes", "128KiB", 200),
        (&small, "max_fields", "1", 502),
        (&small, "max_fields", "2", 200),
    ] {
        let sent = response.clone();
        let origin = Origin::start(move |mut conn: OriginConnection| {
            let sent = sent.clone();
            async move {
                conn.request().await;
                // Fails if the gateway closes the connection.
                conn.raw.stream.write_all(sent.as_bytes()).await.ok();
                conn.raw.rest().await.ok();
            }
        })
        .await;
        let gateway = Settings::to(origin.address).set(key, value).start();
        assert_eq!(gateway.ask(get("/")).await.status(), status, "{key}: {value}");
    }
}
