//! Authorization services (`service` of `require`): what they receive, what their answers cause, and when they are asked.

mod attacks;
mod busy;
mod cache;
mod failures;
mod oauth2_proxy;
mod places;
mod tls;

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::{DATA, Frames};
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// A gateway whose only route asks a service, with an upstream that records what it receives.
struct Asked {
    gateway: TestGateway,
    service: Origin,
    upstream: Origin,
}

impl Asked {
    /// Starts them. `keys` are further keys of `require`, and `route` are further keys of the route.
    async fn start(keys: &str, route: &str) -> Self {
        let (service, upstream) = (start_service().await, start_upstream().await);
        let gateway = TestGateway::start(&rules(&upstream, &requirement(&service, keys), route));
        Self { gateway, service, upstream }
    }

    /// Sends a GET request with this cookie, which selects the answer of the service.
    async fn get(&self, cookie: &str) -> Message {
        self.gateway.get("/orders/1?all=yes", &format!("Cookie: {cookie}\r\n")).await
    }

    /// Returns the statuses of requests with these cookies.
    async fn statuses<const N: usize>(&self, cookies: [&str; N]) -> [u16; N] {
        let mut statuses = [0; N];
        for (status, cookie) in statuses.iter_mut().zip(cookies) {
            *status = self.get(cookie).await.status();
        }
        statuses
    }

    /// Returns the number of checks with this result.
    async fn count(&self, result: &str) -> u64 {
        let series = format!("tidegate_service_checks_total{{route=\"all\",result=\"{result}\"}}");
        self.gateway.counter(&series).await
    }
}

/// Returns `require` with the URL of a service.
fn requirement(service: &Origin, keys: &str) -> String {
    format!("{{ service: 'http://{}/check?zone=a', {keys} }}", service.address)
}

fn rules(upstream: &Origin, requirement: &str, route: &str) -> String {
    format!(
        "store: memory
upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api, require: {requirement}, {route} }}]
",
        upstream.address
    )
}

async fn start_upstream() -> Origin {
    Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await
}

/// Starts a service. The cookie of a request selects its answer.
async fn start_service() -> Origin {
    Origin::start(async |mut conn: OriginConnection| {
        while let Some(request) = conn.request().await {
            match request.field("cookie").as_deref() {
                Some("silent") => _ = conn.raw.closed().await,
                Some("broken") => return,
                cookie => conn.raw.send(answer(cookie.unwrap_or_default())).await,
            }
        }
    })
    .await
}

fn answer(cookie: &str) -> String {
    let (status, fields, body) = match cookie {
        "ann" => ("200 OK", "X-User: ann\r\nX-Plan: gold\r\nX-Secret: 1\r\n", "welcome".to_owned()),
        "unnamed" => ("204 No Content", "", String::new()),
        "private" => ("200 OK", "X-User: private\r\nCache-Control: private, No-Store\r\n", String::new()),
        "login" => (
            "302 Found",
            "Location: https://login.example/?to=%2F\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n",
            String::new(),
        ),
        "forbidden" => (
            "403 Forbidden",
            "Content-Type: text/html\r\nX-Secret: 1\r\nCache-Control: max-age=1\r\n",
            "<p>no</p>".to_owned(),
        ),
        "long" => ("403 Forbidden", "Content-Type: text/html\r\n", "x".repeat(65_537)),
        "large" => ("200 OK", &*format!("X-User: {}\r\n", "x".repeat(9_000)).leak(), String::new()),
        "error" => ("500 Internal Server Error", "", String::new()),
        "odd" => ("404 Not Found", "", String::new()),
        _ => ("401 Unauthorized", "WWW-Authenticate: Bearer realm=\"shop\"\r\n", "log in".to_owned()),
    };
    let length = if status.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("HTTP/1.1 {status}\r\n{fields}{length}Connection: keep-alive\r\n\r\n{body}")
}

#[tokio::test]
async fn allowed_request_carries_the_passed_fields() {
    let asked = Asked::start("pass: [X-User, x-absent]", "").await;
    let response = asked.gateway.get("/", "Cookie: ann\r\nX-User: root\r\nX_User: root\r\nX-Absent: 1\r\n").await;
    assert_eq!((response.status(), response.text().as_str()), (200, "hi"));
    assert_eq!([response.field("x-user"), response.field("x-secret")], [None, None]);
    let forwarded = asked.upstream.last_request();
    assert_eq!(forwarded.field("x-user").as_deref(), Some("ann"));
    assert_eq!(["x_user", "x-absent", "x-secret", "x-plan"].map(|name| forwarded.field(name)), [const { None }; 4]);
    assert_eq!(forwarded.field("cookie").as_deref(), Some("ann"));
}

#[tokio::test]
async fn service_receives_the_description_of_the_request() {
    let asked = Asked::start("headers: [X-Token, cookie]", "").await;
    let request = "DELETE //orders/%31?q=%20 HTTP/1.1\r\nHost: Shop.example:8443\r\nX-Token: t\r\nX-Other: o\r\n\
                   Authorization: Basic eA==\r\nCookie: ann\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(asked.gateway.client().await.ask(request).await.status(), 200);
    let question = asked.service.last_request();
    assert_eq!(question.start, "GET /check?zone=a HTTP/1.1");
    assert!(question.body.is_empty());
    let mut fields = question.fields;
    fields.sort();
    let service = asked.service.address.to_string();
    let expected = [
        ("cookie", "ann"),
        ("host", &service),
        ("via", "1.1 tidegate"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "Shop.example:8443"),
        ("x-forwarded-method", "DELETE"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-uri", "/orders/1?q=%20"),
        ("x-token", "t"),
    ];
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(fields, expected);
    // The upstream gets the same path, and the body.
    let forwarded = asked.upstream.last_request();
    assert_eq!((forwarded.start.as_str(), forwarded.body.as_slice()), ("DELETE /orders/1?q=%20 HTTP/1.1", &b"abc"[..]));
}

#[tokio::test]
async fn denial_is_the_response_of_the_service() {
    let asked = Asked::start("", "").await;
    let missing = asked.get("none").await;
    assert_eq!((missing.status(), missing.text().as_str()), (401, "log in"));
    assert_eq!(missing.field("www-authenticate").as_deref(), Some("Bearer realm=\"shop\""));
    assert_eq!(missing.field("cache-control").as_deref(), Some("no-store"));
    let login = asked.get("login").await;
    assert_eq!((login.status(), login.text().as_str()), (302, ""));
    assert_eq!(login.field("location").as_deref(), Some("https://login.example/?to=%2F"));
    assert_eq!(login.field("set-cookie").as_deref(), Some("a=1 | b=2"));
    let forbidden = asked.get("forbidden").await;
    assert_eq!((forbidden.status(), forbidden.text().as_str()), (403, "<p>no</p>"));
    assert_eq!(forbidden.field("content-type").as_deref(), Some("text/html"));
    assert_eq!(forbidden.field("cache-control").as_deref(), Some("max-age=1"));
    assert_eq!(forbidden.field("x-secret"), None);
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\nCookie: forbidden\r\n\r\n";
    let mut client = asked.gateway.client().await;
    assert_eq!([client.ask(head).await.status(), client.ask(head).await.status()], [403, 403]);
    assert!(asked.upstream.requests().is_empty());
    assert_eq!((asked.count("denied").await, asked.count("allowed").await), (5, 0));
}

#[tokio::test]
async fn long_denial_has_no_body() {
    let asked = Asked::start("", "").await;
    let response = asked.get("long").await;
    assert_eq!((response.status(), response.text().as_str(), response.field("content-type")), (403, "", None));
    assert_eq!(asked.get("ann").await.status(), 200);
}

#[tokio::test]
async fn connections_to_the_service_are_reused() {
    let (service, upstream) = (start_service().await, start_upstream().await);
    let gateway = TestGateway::start_with_one_worker(&rules(&upstream, &requirement(&service, ""), ""));
    for cookie in ["ann", "none", "unnamed", "login", "forbidden"] {
        gateway.get("/", &format!("Cookie: {cookie}\r\n")).await;
    }
    assert_eq!((service.connections(), service.requests().len()), (1, 5));
}

#[tokio::test]
async fn http2_request_is_asked_about() {
    let asked = Asked::start("pass: [x-user]", "").await;
    let mut client = Frames::connect(asked.gateway.address, &[]).await;
    // Each cookie in its own field (RFC 9113 section 8.2.3).
    client.open(1, "GET", "/a", &[("cookie", "one"), ("cookie", "two")], true).await;
    assert_eq!(client.status(1).await, 401);
    let question = asked.service.last_request();
    assert_eq!(question.field("cookie").as_deref(), Some("one; two"));
    assert_eq!(question.field("x-forwarded-host").as_deref(), Some("test.example"));
    client.open(3, "POST", "/a", &[("cookie", "ann"), ("x-user", "root")], false).await;
    client.frame(DATA, 1, 3, b"body").await;
    assert_eq!(client.status(3).await, 200);
    let forwarded = asked.upstream.last_request();
    assert_eq!((forwarded.field("x-user").as_deref(), forwarded.text().as_str()), (Some("ann"), "body"));
}

#[tokio::test]
async fn denied_call_gets_a_grpc_error() {
    let asked = Asked::start("timeout: 100ms", "").await;
    let mut client = asked.gateway.client().await;
    for (cookie, status) in [("none", "16"), ("login", "16"), ("forbidden", "7"), ("silent", "14")] {
        let call = format!(
            "POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nCookie: {cookie}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        let response = client.ask(call).await;
        let fields = (response.status(), response.field("grpc-status"), response.field("location"));
        assert_eq!(fields, (200, Some(status.to_owned()), None), "{cookie}");
    }
}
