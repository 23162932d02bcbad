//! Clients that forge what the service or the upstream receives, and services that break the framing.

use super::*;

#[tokio::test]
async fn client_cannot_describe_its_request() {
    let asked = Asked::start("", "").await;
    let forged = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /public\r\nX-Forwarded-Host: evil.example\r\n\
                  X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.1\r\nX_Forwarded_Uri: /public\r\nCookie: ann\r\n";
    let request = format!("PUT /admin HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n{forged}\r\n");
    assert_eq!(asked.gateway.client().await.ask(request).await.status(), 200);
    let question = asked.service.last_request();
    let field = |name: &str| question.field(&format!("x-forwarded-{name}")).unwrap_or_default();
    assert_eq!(
        ["method", "uri", "host", "proto", "for"].map(field),
        ["PUT", "/admin", "shop.example", "http", "127.0.0.1"]
    );
}

/// No target and no host adds a line to the request to the service.
#[tokio::test]
async fn target_and_host_cannot_inject_lines() {
    let asked = Asked::start("headers: [cookie, x-token]", "").await;
    for target in ["/%0d%0aX-User:%20root", "/a;%0aGET%20/", "/?%0d%0a%0d%0aGET%20/%20HTTP/1.1", "/..%2f..%2fcheck"] {
        let mut client = asked.gateway.client().await;
        let before = asked.service.requests().len();
        let response =
            client.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\nCookie: ann\r\nX-Token: a\tb\r\n\r\n")).await;
        let asked_now = asked.service.requests().len() - before;
        assert!(matches!((response.status(), asked_now), (200, 1) | (400, 0)), "{target}: {}", response.status());
    }
    for host in ["a%0d%0ab", "a b", "a/b", "a@b", "a\tb", ""] {
        let before = asked.service.requests().len();
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: ann\r\n\r\n");
        assert_eq!(asked.gateway.client().await.ask(request).await.status(), 400, "{host:?}");
        assert_eq!(asked.service.requests().len(), before);
    }
    for question in asked.service.requests() {
        assert_eq!(question.start, "GET /check?zone=a HTTP/1.1");
        assert_eq!((question.field("x-user"), question.body.len()), (None, 0));
    }
}

/// The service could read the first credentials, and the upstream the last.
#[tokio::test]
async fn two_credentials_are_rejected() {
    let asked = Asked::start("", "").await;
    let response =
        asked.gateway.get("/", "Cookie: ann\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n").await;
    assert_eq!(response.status(), 400);
    assert!(asked.service.requests().is_empty() && asked.upstream.requests().is_empty());
}

/// Framing fields of the service do not reach the client or the upstream.
#[tokio::test]
async fn framing_of_the_service_ends_at_the_gateway() {
    let service = Origin::start(async |mut conn: OriginConnection| {
        while let Some(request) = conn.request().await {
            let status = if request.field("cookie").is_some() { "200 OK" } else { "401 Unauthorized" };
            let fields = "X-User: ann\r\nTrailer: x-user\r\nConnection: x-user, keep-alive\r\nUpgrade: h2c\r\n\
                          Transfer-Encoding: chunked\r\nContent-Type: text/plain";
            conn.raw.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n2\r\nno\r\n0\r\nX-User: root\r\n\r\n")).await;
        }
    })
    .await;
    let upstream = start_upstream().await;
    let gateway = TestGateway::start(&rules(&upstream, &requirement(&service, "pass: [x-user]"), ""));
    let mut client = gateway.client().await;
    for _ in 0..2 {
        let denied = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(
            (denied.status(), denied.text().as_str(), denied.field("content-length")),
            (401, "no", Some("2".to_owned()))
        );
        assert_eq!(
            ["transfer-encoding", "trailer", "upgrade", "x-user"].map(|name| denied.field(name)),
            [const { None }; 4]
        );
    }
    let allowed = client.ask("GET / HTTP/1.1\r\nHost: a\r\nCookie: a\r\nConnection: x-user\r\n\r\n").await;
    if allowed.status() == 200 {
        assert_eq!(upstream.last_request().field("x-user").as_deref(), Some("ann"));
    } else {
        assert_eq!(allowed.status(), 400, "the client names a field of the service in `Connection`");
    }
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\nCookie: a\r\n\r\n").await.status(), 200);
    let forwarded = upstream.last_request();
    assert_eq!(forwarded.field("x-user").as_deref(), Some("ann"));
    assert_eq!(["transfer-encoding", "trailer", "upgrade"].map(|name| forwarded.field(name)), [const { None }; 3]);
}

/// A service that is the gateway itself asks itself about each question.
#[tokio::test]
async fn service_that_is_the_gateway_ends_the_loop() {
    let upstream = start_upstream().await;
    let gateway = TestGateway::start(&rules(&upstream, "{ service: 'http://127.0.0.1:1/' }", ""));
    gateway.reload(&rules(&upstream, &format!("{{ service: 'http://{}/' }}", gateway.address), ""));
    assert_eq!(gateway.get("/", "").await.status(), 503);
    assert!(upstream.requests().is_empty());
}
