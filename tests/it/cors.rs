//! `cors`: browsers read responses of the gateway and of upstreams, and preflights are free.

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::Origin;

const PAGE: &str = "https://app.example.com";

fn rules(target: &str) -> String {
    format!(
        "requests: {{ request_id: true }}
upstreams: {{ api: {{ targets: ['{target}'] }}, gone: {{ targets: ['http://127.0.0.1:1'] }} }}
routes:
  - name: internal
    match: {{ path: /api/internal }}
    upstream: api
  - name: keys
    match: {{ path: '/keys/**', methods: [POST], headers: {{ X-Key: secret }} }}
    upstream: api
    cors: {{ origins: ['{PAGE}'], methods: [POST], headers: [X-Key], expose: [X-Total], max_age: 10m }}
  - name: gone
    match: {{ path: /gone }}
    upstream: gone
    cors: {{ origins: ['*'] }}
  - name: api
    match: {{ path: '/api/**', methods: [GET, PUT] }}
    upstream: api
    quota: /quota
    cors: {{ origins: ['{PAGE}', 'https://*.example.org', 'http://localhost:*'], credentials: true }}
    headers: [ietf, legacy]
    limits:
      - {{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }}
"
    )
}

async fn send(gateway: &TestGateway, method: &str, path: &str, fields: &str) -> Message {
    let mut client = gateway.client().await;
    client.send(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await;
    client.response(false).await
}

async fn preflight(gateway: &TestGateway, path: &str, origin: &str, method: &str) -> Message {
    announce(gateway, path, origin, method, "x-a,x-b").await
}

/// Sends a preflight that announces these fields.
async fn announce(gateway: &TestGateway, path: &str, origin: &str, method: &str, names: &str) -> Message {
    let fields = format!(
        "Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: {names}\r\n"
    );
    send(gateway, "OPTIONS", path, &fields).await
}

/// Returns the fields of the CORS protocol without their common start, and `Vary`.
fn cors_fields(response: &Message) -> [String; 6] {
    ["allow-origin", "allow-credentials", "allow-methods", "allow-headers", "max-age"]
        .map(|name| response.field(&format!("access-control-{name}")).unwrap_or_default())
        .into_iter()
        .chain([response.field("vary").unwrap_or_default()])
        .collect::<Vec<_>>()
        .try_into()
        .expect("six fields")
}

const PREFLIGHT_VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

#[tokio::test]
async fn preflights_are_answered_and_neither_charged_nor_forwarded() {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let gateway = TestGateway::start(&rules(&format!("http://{}", origin.address)));
    for _ in 0..5 {
        for path in ["/api/a", "/quota"] {
            let response = preflight(&gateway, path, PAGE, "GET").await;
            assert_eq!(response.status(), 204, "{response:?}");
            assert_eq!(cors_fields(&response), [PAGE, "true", "GET", "x-a,x-b", "", PREFLIGHT_VARY]);
            assert_eq!(response.field("ratelimit"), None);
        }
    }
    // The route needs the field X-Key, whose value no preflight has.
    let response = announce(&gateway, "/keys/1", PAGE, "POST", "x-a, X-Key").await;
    assert_eq!(cors_fields(&response), [PAGE, "", "POST", "x-key", "600", PREFLIGHT_VARY]);
    let refused = preflight(&gateway, "/api/a", "https://evil.example", "GET").await;
    assert_eq!(
        (refused.status(), cors_fields(&refused)),
        (403, ["", "", "", "", "", PREFLIGHT_VARY].map(str::to_owned))
    );
    // No route with `cors` serves these requests.
    for (path, method) in [("/api/a", "DELETE"), ("/keys/1", "GET"), ("/none", "GET")] {
        assert_eq!(preflight(&gateway, path, PAGE, method).await.status(), 404, "{method} {path}");
    }
    assert_eq!(send(&gateway, "GET", "/api/a", "").await.field("ratelimit").as_deref(), Some("\"per-ip\";r=1;t=3600"));
    assert_eq!(origin.requests().len(), 1, "a preflight was forwarded");
    // A route without `cors` leaves preflights to its upstream, also in front of a route with `cors`.
    let response = preflight(&gateway, "/api/internal", PAGE, "GET").await;
    assert_eq!((response.status(), cors_fields(&response)[0].as_str()), (200, ""));
    assert_eq!(origin.requests().len(), 2);
}

/// The announced fields decide between routes, and an unknown value must be allowed by each route that it can lead to.
#[tokio::test]
async fn preflight_is_allowed_by_all_routes_that_can_match() {
    let gateway = TestGateway::start(
        "upstreams: { api: { targets: ['builtin:echo'] } }
routes:
  - { name: staging, match: { path: /api/**, headers: { x-env: staging } }, upstream: api, cors: { origins: ['https://staging.example'] } }
  - { name: live, match: { path: /api/** }, upstream: api, cors: { origins: ['https://app.example', 'https://both.example'] } }
  - { name: partner, match: { path: /own/**, headers: { x-partner: '1' } }, upstream: api, cors: { origins: ['*'] } }
  - { name: own, match: { path: /own/** }, upstream: api }
  - { name: known, match: { path: /cookie, cookies: { session: present } }, upstream: api, cors: { origins: ['*'] } }
  - { name: unknown, match: { path: /cookie }, upstream: api }\n",
    );
    for (path, origin, names, status) in [
        ("/api/a", "https://app.example", "x-a", 204),
        ("/api/a", "https://staging.example", "x-a", 403),
        ("/api/a", "https://app.example", "x-env", 403),
        ("/api/a", "https://staging.example", "x-env", 403),
        ("/own/a", "https://partner.example", "x-a", 200),
        ("/own/a", "https://partner.example", "x-partner", 200),
        ("/cookie", "https://partner.example", "x-a", 200),
    ] {
        let response = announce(&gateway, path, origin, "DELETE", names).await;
        let allowed = response.field("access-control-allow-origin");
        assert_eq!((response.status(), allowed.is_some()), (status, status == 204), "{path} {origin} {names}");
    }
}

#[tokio::test]
async fn all_responses_of_the_route_have_the_fields() {
    let theirs = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Max-Age: 9\r\nVary: Accept\r\n\
                  access-control-expose-headers: X-Own\r\nContent-Length: 0\r\n\r\n";
    let origin = Origin::with_response(theirs).await;
    let gateway = TestGateway::start(&rules(&format!("http://{}", origin.address)));
    let field = format!("Origin: {PAGE}\r\n");
    for (path, status) in [("/api/a", 200), ("/api/a", 200), ("/api/a", 429), ("/quota", 200)] {
        let response = send(&gateway, "GET", path, &field).await;
        assert_eq!(response.status(), status, "{path}");
        let vary = if status == 200 && path == "/api/a" { "Accept | Origin" } else { "Origin" };
        assert_eq!(cors_fields(&response), [PAGE, "true", "", "", "", vary], "{path} {status}");
        let exposed = response.field("access-control-expose-headers").expect("exposed fields");
        assert!(exposed.starts_with("Retry-After, RateLimit, ") && exposed.ends_with("X-Request-Id"), "{exposed}");
        if status == 429 {
            let fields = ["retry-after", "ratelimit", "x-ratelimit-remaining", "x-request-id"];
            assert!(fields.iter().all(|name| response.field(name).is_some()), "{response:?}");
        }
    }
    let below = send(&gateway, "GET", "/api/a", "Origin: https://x.y.example.org\r\n").await;
    assert_eq!((below.status(), cors_fields(&below)[0].as_str()), (429, "https://x.y.example.org"));
    // A cache must not send a response without the fields to a page that may read it.
    for fields in ["", "Origin: null\r\n", "Origin: https://example.org\r\n"] {
        let response = send(&gateway, "GET", "/api/a", fields).await;
        assert_eq!(cors_fields(&response), ["", "", "", "", "", "Origin"], "{fields}");
    }
    let response = send(&gateway, "GET", "/gone", "").await;
    assert_eq!((response.status(), cors_fields(&response)), (502, ["*", "", "", "", "", ""].map(str::to_owned)));
}

#[tokio::test]
async fn port_wildcard_allows_any_port_of_its_host() {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let gateway = TestGateway::start(&rules(&format!("http://{}", origin.address)));
    for page in ["http://localhost", "http://localhost:3000", "http://localhost:5173"] {
        let response = preflight(&gateway, "/api/a", page, "GET").await;
        assert_eq!((response.status(), cors_fields(&response)[0].as_str()), (204, page));
    }
    for page in [
        "https://localhost:3000",
        "http://localhost.evil.com:80",
        "http://localhost:80@evil",
        "http://localhost:80@evil:80",
        "http://localhost:",
        "http://app.localhost:80",
    ] {
        let response = preflight(&gateway, "/api/a", page, "GET").await;
        assert_eq!((response.status(), cors_fields(&response)[0].as_str()), (403, ""), "{page}");
    }
}
