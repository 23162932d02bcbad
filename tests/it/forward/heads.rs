//! Heads of requests and responses: rewritten fields, ambiguous framing, and methods for the gateway itself.

use super::*;

#[tokio::test]
async fn request_gets_forwarding_fields_and_loses_hop_by_hop_fields() {
    let origin = Origin::with_response(
        "HTTP/1.1 200 Fine\r\nContent-Length: 0\r\nConnection: x-hop\r\nX-Hop: 1\r\nVia: 1.1 o\r\n\r\n",
    )
    .await;
    let gateway = Settings::to(origin.address).start();
    let request = "GET /a/b?q=1 HTTP/1.1\r\nHost: api.example\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\n\
                   Keep-Alive: 5\r\nProxy-Connection: x\r\nTE: gzip, trailers\r\nUpgrade: websocket\r\n\
                   X-Forwarded-For: 192.0.2.1\r\nX-End: 1\r\n\r\n";
    let response = gateway.ask(request).await;
    let sent = origin.last_request();
    assert_eq!(sent.start, "GET /a/b?q=1 HTTP/1.1");
    for (name, value) in [
        ("host", Some("api.example")),
        ("connection", Some("te")),
        ("te", Some("trailers")),
        ("x-hop", None),
        ("keep-alive", None),
        ("proxy-connection", None),
        ("upgrade", None),
        ("transfer-encoding", None),
        ("content-length", None),
        ("x-end", Some("1")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-host", Some("api.example")),
        ("x-forwarded-proto", Some("http")),
        ("via", Some("1.1 tidegate")),
    ] {
        assert_eq!(sent.field(name).as_deref(), value, "{name}");
    }
    assert_eq!(response.start, "HTTP/1.1 200 Fine");
    assert_eq!(response.field("x-hop"), None);
    assert_eq!(response.field("via").as_deref(), Some("1.1 o | 1.1 tidegate"));
}

#[tokio::test]
async fn trusted_peer_continues_the_chain() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).trust_clients().start();
    gateway.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n").await;
    assert_eq!(origin.last_request().field("x-forwarded-for").as_deref(), Some("192.0.2.1, 127.0.0.1"));
    assert_eq!(origin.last_request().field("x-forwarded-proto").as_deref(), Some("https"));
}

#[tokio::test]
async fn ambiguous_framing_is_normalized_or_rejected() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let chunk = "1\r\nx\r\n0\r\n\r\n";
    for (head, status) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST http://b/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ] {
        let before = origin.requests().len();
        let response = gateway.ask(format!("{head}{chunk}")).await;
        assert_eq!(response.status(), status, "{head:?}: {}", response.text());
        assert_eq!(origin.requests().len() - before, usize::from(status == 200), "{head:?}");
        if status == 200 {
            let sent = origin.last_request();
            assert_eq!(sent.body, b"x", "{head:?}");
            assert_eq!((sent.field("content-length"), sent.field("transfer-encoding")), (None, Some("chunked".into())));
            let host = if head.contains("//b/") { "b" } else { "a" };
            assert_eq!(sent.field("host").as_deref(), Some(host));
            assert!(sent.start.starts_with("POST /") || sent.start.starts_with("GET /"), "{}", sent.start);
        }
    }
}

#[tokio::test]
async fn content_length_is_canonical_and_not_repeated() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    for lengths in ["5, 5\r\n", "5,\r\n", "5\r\nContent-Length: 5\r\n", "5\r\nContent-Length: 05\r\n"] {
        let response = gateway.ask(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {lengths}\r\nhello")).await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (400, Some("close")), "{lengths:?}");
    }
    assert!(origin.requests().is_empty());
    let body = "0123456789";
    let response = gateway.ask(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\n{body}")).await;
    assert_eq!(response.status(), 200);
    let sent = origin.last_request();
    assert_eq!((sent.field("content-length").as_deref(), sent.text().as_str()), (Some("10"), body), "octal 010 is 8");
}

#[tokio::test]
async fn response_content_length_is_canonical() {
    for (length, forwarded) in [("002", Some("2")), ("2, 2", None), ("2\r\nContent-Length: 2", None)] {
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nok");
        let origin = Origin::with_response(response.leak()).await;
        let gateway = Settings::to(origin.address).start();
        for method in ["GET", "HEAD"] {
            let response = gateway.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            match forwarded {
                Some(_) => {
                    assert_eq!((response.status(), response.field("content-length").as_deref()), (200, forwarded));
                }
                None => assert_eq!(response.status(), 502, "{length}"),
            }
        }
    }
}

#[tokio::test]
async fn request_loop_is_rejected_with_508() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let status = async |times: usize| {
        let via = vec!["1.1 tidegate"; times].join(", ");
        gateway.ask(format!("GET / HTTP/1.1\r\nHost: a\r\nVia: {via}\r\n\r\n")).await.status()
    };
    assert_eq!((status(5).await, status(6).await), (200, 508));
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn upstream_cannot_name_end_to_end_fields_as_hop_by_hop() {
    let fields =
        "Connection: set-cookie, cache-control, x-own\r\nSet-Cookie: a\r\nCache-Control: no-store\r\nX-Own: 1\r\n";
    let origin = Origin::with_response(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n").leak()).await;
    let response = Settings::to(origin.address).start().ask(get("/")).await;
    assert_eq!((response.field("set-cookie").as_deref(), response.field("x-own")), (Some("a"), None));
    assert_eq!(response.field("cache-control").as_deref(), Some("no-store"));
}

#[tokio::test]
async fn methods_for_the_gateway_do_not_reach_the_origin() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    for (head, status) in [
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n", 204),
    ] {
        assert_eq!(gateway.ask(head).await.status(), status, "{head}");
    }
    let traced = "TRACE /a HTTP/1.1\r\nHost: a\r\nX-Secret: 1\r\nVia: 1.1 b\r\nMax-Forwards: 0\r\n\r\n";
    let trace = gateway.ask(traced).await;
    assert_eq!((trace.status(), trace.field("content-type").as_deref()), (200, Some("message/http")));
    assert_eq!(trace.text(), "TRACE /a HTTP/1.1\r\nhost: a\r\nvia: 1.1 b\r\nmax-forwards: 0\r\n\r\n");
    assert_eq!(gateway.ask(traced.replace(": 0", ": 1")).await.status(), 501);
    assert!(origin.requests().is_empty());
    gateway.ask("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 5\r\n\r\n").await;
    assert_eq!(origin.last_request().field("max-forwards").as_deref(), Some("4"));
}

#[tokio::test]
async fn bodiless_responses_keep_the_connection_usable() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            conn.raw
                .send(match request.start.split(' ').nth(1).unwrap() {
                    "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                    "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                    "/103" => {
                        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                    }
                    _ => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                })
                .await;
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    assert_eq!(client.ask(get("/204")).await.status(), 204);
    assert_eq!(client.ask(get("/304")).await.status(), 304);
    let head = client.ask("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((head.status(), head.field("content-length").as_deref()), (200, Some("9")));
    let hinted = client.ask(get("/103")).await;
    assert_eq!((hinted.status(), hinted.text().as_str()), (200, "ok"));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn ambiguous_responses_are_rejected() {
    for response in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "no http\r\n\r\n",
    ] {
        let origin = Origin::with_response(response).await;
        let gateway = Settings::to(origin.address).start();
        let rejection = gateway.ask(get("/")).await;
        assert_eq!((rejection.status(), rejection.field("x-not-sent")), (502, None), "{response:?}");
        assert_eq!(origin.requests().len(), 1);
    }
}

#[tokio::test]
async fn http10_origin_is_supported() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.0 200 OK\r\n\r\nuntil the end").await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    for _ in 0..2 {
        let response = client.ask(get("/")).await;
        assert_eq!((response.start.as_str(), response.text().as_str()), ("HTTP/1.1 200 OK", "until the end"));
        assert_eq!(response.field("via").as_deref(), Some("1.0 tidegate"));
    }
    assert_eq!(origin.connections(), 2);
}
