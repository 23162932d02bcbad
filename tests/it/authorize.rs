//! `authorize`: a proxy asks about the requests of its clients, and the gateway forwards none of them.

use tidegate_limit::MAX_RATE;

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::Origin;

fn rules(target: &str, trusted: &str) -> String {
    format!(
        "clients: {{ trusted_proxies: [{trusted}] }}
upstreams: {{ api: {{ targets: ['{target}'] }} }}
routes:
  - {{ name: auth, match: {{ path: /_authorize }}, authorize: {{}} }}
  - {{ name: nginx, match: {{ path: /_nginx }}, authorize: {{ nginx: true }} }}
  - {{ name: envoy, match: {{ path: '/_envoy/**' }}, authorize: {{}} }}
  - name: orders
    match: {{ host: shop.example, path: '/orders/**', methods: [POST] }}
    upstream: api
    limits:
      - {{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }}
  - name: keys
    match: {{ path: '/keys/{{id}}' }}
    upstream: api
    limits:
      - {{ name: key, mode: PER_CLIENT, client: 'header:X-Key', rate: {MAX_RATE}, interval: 1h }}
"
    )
}

/// Routes that deny some requests.
const DENIALS: &str = "  - { name: blocked, match: { clients: [203.0.113.0/24] }, respond: { status: 403 } }
  - { name: moved, match: { path: /old }, redirect: { to: 'https://shop.example/new', status: 308 } }
  - { name: robots, match: { path: /robots.txt }, respond: { status: 200, body: 'none' } }
  - name: api
    match: { path: '/api/**' }
    upstream: api
    cors: { origins: ['https://app.example'] }
    limits: [{ name: one, mode: OVERALL, rate: 1, interval: 1h }]
";

struct Asked {
    gateway: TestGateway,
    origin: Origin,
}

impl Asked {
    async fn start(trusted: &str) -> Self {
        let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let gateway = TestGateway::start(&(rules(&format!("http://{}", origin.address), trusted) + DENIALS));
        Self { gateway, origin }
    }

    async fn ask(&self, head: &str, fields: &str) -> Message {
        let mut client = self.gateway.client().await;
        client.send(&format!("{head} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n")).await;
        client.response(head.starts_with("HEAD")).await
    }
}

/// The fields that nginx sends with the configuration of examples/authorize.
fn nginx(method: &str, uri: &str, client: &str) -> String {
    format!("X-Original-Method: {method}\r\nX-Original-URI: {uri}\r\nX-Forwarded-For: {client}\r\n")
}

#[tokio::test]
async fn limits_of_the_original_request_are_charged_for_its_client() {
    let asked = Asked::start("127.0.0.0/8").await;
    let first = asked.ask("GET /_authorize", &nginx("POST", "/orders/1?a=b", "192.0.2.1")).await;
    assert_eq!((first.status(), first.text()), (200, String::new()));
    assert_eq!(first.field("ratelimit").as_deref(), Some("\"per-ip\";r=0;t=3600"));
    let second = asked.ask("GET /_authorize", &nginx("POST", "/orders/2", "192.0.2.1")).await;
    assert_eq!((second.status(), second.field("retry-after").as_deref()), (429, Some("3600")));
    assert!(second.text().contains("per-ip"), "{second:?}");
    // Another client, another method, another host, and a path in another spelling.
    for (method, uri, client, status) in [
        ("POST", "/orders/1", "192.0.2.2", 200),
        ("GET", "/orders/1", "192.0.2.1", 200),
        ("POST", "http://other.example/orders/1", "192.0.2.1", 200),
        ("POST", "/x/../orders/%31", "192.0.2.1", 429),
        ("POST", "/orders/%00", "192.0.2.3", 400),
    ] {
        let response = asked.ask("GET /_authorize", &nginx(method, uri, client)).await;
        assert_eq!(response.status(), status, "{method} {uri} of {client}");
    }
    assert_eq!(asked.origin.requests().len(), 0, "a request was forwarded");
}

#[tokio::test]
async fn caddy_and_envoy_name_the_original_request() {
    let asked = Asked::start("127.0.0.0/8").await;
    let caddy = "X-Forwarded-Method: POST\r\nX-Forwarded-Uri: /orders/1\r\nX-Forwarded-Host: shop.example\r\n\
                 X-Forwarded-For: 192.0.2.9\r\n";
    assert_eq!(asked.ask("GET /_authorize", caddy).await.status(), 200);
    assert_eq!(
        asked.ask("POST /_envoy/orders/1", "X-Forwarded-For: 192.0.2.9\r\nContent-Length: 0\r\n").await.status(),
        429
    );
    assert_eq!(
        asked.ask("POST /_envoy/orders/1", "X-Forwarded-For: 192.0.2.8\r\nContent-Length: 0\r\n").await.status(),
        200
    );
    let head = asked.ask("HEAD /_envoy/orders/1", "X-Forwarded-For: 192.0.2.9\r\n").await;
    assert_eq!(head.status(), 200, "another method");
    assert_eq!(asked.origin.requests().len(), 0, "a request was forwarded");
}

#[tokio::test]
async fn nginx_gets_a_status_that_it_forwards() {
    let asked = Asked::start("127.0.0.0/8").await;
    let ask = async |fields: &str| {
        let response = asked.ask("GET /_nginx", fields).await;
        let fields = ["x-tidegate-status", "retry-after"].map(|name| response.field(name).unwrap_or_default());
        (response.status(), fields.join(" "))
    };
    let fields = nginx("POST", "/orders/1", "192.0.2.1");
    assert_eq!(ask(&fields).await, (200, " ".to_owned()));
    assert_eq!(ask(&fields).await, (403, "429 3600".to_owned()));
    // An error of a gRPC call has the status 200, which would admit the request.
    assert_eq!(
        ask(&format!("{fields}Content-Type: application/grpc\r\nTE: trailers\r\n")).await,
        (403, "429 3600".to_owned())
    );
    assert_eq!(ask(&nginx("GET", "/keys/1", "192.0.2.1")).await, (403, "400 ".to_owned()));
    assert_eq!(ask("").await, (403, "400 ".to_owned()));
}

#[tokio::test]
async fn grpc_calls_get_a_status_that_rejects_them() {
    let asked = Asked::start("127.0.0.0/8").await;
    let fields =
        "X-Forwarded-For: 192.0.2.9\r\nContent-Type: application/grpc\r\nTE: trailers\r\nContent-Length: 0\r\n";
    assert_eq!(asked.ask("POST /_envoy/orders/1", fields).await.status(), 200);
    assert_eq!(asked.ask("POST /_envoy/orders/1", fields).await.status(), 429);
}

#[tokio::test]
async fn only_trusted_proxies_ask_and_never_about_themselves() {
    let asked = Asked::start("192.0.2.0/24").await;
    for head in ["GET /_authorize", "GET /_nginx", "GET /_envoy/orders/1"] {
        let response = asked.ask(head, &nginx("POST", "/orders/1", "192.0.2.1")).await;
        assert_eq!(response.status(), 403, "{head}");
    }
    let asked = Asked::start("127.0.0.0/8").await;
    for uri in ["/_authorize", "/_nginx", "/_envoy/_envoy/a", "/x/../_authorize/"] {
        assert_eq!(asked.ask("GET /_authorize", &nginx("GET", uri, "192.0.2.1")).await.status(), 400, "{uri}");
    }
    assert_eq!(asked.ask("GET /_envoy/_envoy/a", "").await.status(), 400);
    // A client cannot replace a field of the proxy.
    for more in ["X-Forwarded-Uri: /free\r\n", "X-Original-Method: GET\r\n", "X-Original-URL: /free\r\n"] {
        let fields = nginx("POST", "/orders/1", "192.0.2.1") + more;
        assert_eq!(asked.ask("GET /_authorize", &fields).await.status(), 400, "{more}");
    }
}

#[tokio::test]
async fn responses_of_the_rule_file_deny_the_request() {
    let asked = Asked::start("127.0.0.0/8").await;
    for (uri, client, status) in [
        ("/free", "203.0.113.9", 403),
        ("/free", "192.0.2.1", 200),
        ("/old", "192.0.2.1", 308),
        ("/robots.txt", "192.0.2.1", 200),
    ] {
        let response = asked.ask("GET /_authorize", &nginx("GET", uri, client)).await;
        assert_eq!(response.status(), status, "{uri} of {client}");
        let response = asked.ask("GET /_nginx", &nginx("GET", uri, client)).await;
        let expected = if status == 200 { (200, None) } else { (403, Some(status.to_string())) };
        assert_eq!((response.status(), response.field("x-tidegate-status")), expected, "{uri} of {client}");
    }
}

#[tokio::test]
async fn preflights_are_allowed_and_not_charged() {
    let asked = Asked::start("127.0.0.0/8").await;
    let preflight = |origin: &str| {
        let fields = nginx("OPTIONS", "/api/a", "192.0.2.1");
        format!("{fields}Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\n")
    };
    for _ in 0..2 {
        assert_eq!(asked.ask("GET /_authorize", &preflight("https://app.example")).await.status(), 200);
    }
    assert_eq!(asked.ask("GET /_authorize", &preflight("https://evil.example")).await.status(), 403);
    let statuses = [
        asked.ask("GET /_authorize", &nginx("GET", "/api/a", "192.0.2.1")).await.status(),
        asked.ask("GET /_authorize", &nginx("GET", "/api/a", "192.0.2.1")).await.status(),
    ];
    assert_eq!(statuses, [200, 429]);
}

/// Regression test: nginx accepts such hosts, and the path of the URL became `/`.
#[tokio::test]
async fn host_of_a_client_does_not_change_the_path() {
    let asked = Asked::start("127.0.0.0/8").await;
    for host in ["shop.example?", "shop.example#", "a@shop.example", ""] {
        let fields = nginx("POST", "/orders/1", "192.0.2.1")
            .replace("X-Original-URI: ", &format!("X-Original-URL: http://{host}"));
        assert_eq!(asked.ask("GET /_authorize", &fields).await.status(), 400, "{host}");
    }
}

#[tokio::test]
async fn layer_answers_for_proxies_without_a_handler() {
    use tower::{Layer, Service};
    let layer = tidegate::RateLimitLayer::from_yaml(&rules("http://127.0.0.1:1", "192.0.2.9")).expect("a layer");
    let handler = tower::service_fn(|_: http::Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
    });
    let mut service = layer.layer(handler);
    let mut ask = async || {
        let request = http::Request::get("/_authorize")
            .header("host", "shop.example")
            .header("x-original-uri", "/orders/1")
            .header("x-original-method", "POST")
            .header("x-forwarded-for", "192.0.2.1")
            .extension(tidegate::Peer("192.0.2.9".parse().expect("an address")))
            .body(())
            .expect("a request");
        service.call(request).await.expect("a response").status().as_u16()
    };
    assert_eq!([ask().await, ask().await], [200, 429]);
}
