//! Changes of requests for upstreams, and of responses.

use http::HeaderMap;

use super::{gateway, gateway_with};
use crate::support::gateway::TestGateway;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

const ROUTES: &str = r#"
  - name: orders
    match: { path: "/orders/**" }
    upstream: api
    rewrite: { strip_prefix: /orders, add_prefix: /v2, host: upstream }
    request_headers:
      set: { x-original: "{path}", x-who: "{client_ip} {host} {route} {request_id}", x-fixed: one }
      add: { x-list: b }
      remove: [cookie, x-secret]
    response_headers: { set: { x-route: "{route}" }, remove: [server] }
  - { name: named, match: { path: "/named/**" }, upstream: api, rewrite: { strip_prefix: /named, host: "api.internal:81" } }
  - { name: rest, match: { path: /** }, upstream: api }
"#;

const FIELDS: &str = "X-Original: no\r\nX-Fixed: no\r\nX-List: a\r\nCookie: a=1\r\nX-Secret: s\r\n";

#[tokio::test]
async fn upstream_receives_the_changed_request() {
    let (origin, gateway) = gateway(ROUTES).await;
    let response = gateway.get("/orders/5%2C6;v=1?q=%2e%2e&r", FIELDS).await;
    assert_eq!((response.status(), response.field("x-route").as_deref()), (200, Some("orders")));
    assert_eq!(response.field("server"), None);
    let request = origin.last_request();
    assert_eq!(request.start, "GET /v2/5%2C6;v=1?q=%2e%2e&r HTTP/1.1");
    let field = |name: &str| request.field(name).unwrap_or_default();
    assert_eq!(field("host"), origin.address.to_string());
    assert_eq!(field("x-forwarded-host"), "test.example");
    assert_eq!(field("x-original"), "/orders/5%2C6;v=1");
    assert_eq!(field("x-who"), format!("127.0.0.1 test.example orders {}", field("x-request-id")));
    assert_eq!((field("x-fixed").as_str(), field("x-list").as_str()), ("one", "a | b"));
    for name in ["cookie", "x-secret"] {
        assert_eq!(request.field(name), None, "{name}");
    }
}

#[tokio::test]
async fn client_cannot_send_the_fields_of_the_gateway_otherwise() {
    let (origin, gateway) = gateway_with("request_id: true, underscores: keep", ROUTES).await;
    let response = gateway
        .client()
        .await
        .ask(
            "POST /orders/1 HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nX_Fixed: no\r\nX_Secret: s\r\nX_Other: 1\r\n\
             Trailer: X-Fixed, X-Secret, X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nhi\r\n0\r\nX-Fixed: no\r\nX-Secret: s\r\nX-Sum: 1\r\n\r\n",
        )
        .await;
    assert_eq!(response.status(), 200);
    let request = origin.last_request();
    assert_eq!(request.field("x-fixed").as_deref(), Some("one"));
    let others = ["x_fixed", "x_secret", "x_other"].map(|name| request.field(name));
    assert_eq!(others, [None, None, Some("1".to_owned())]);
    assert_eq!(request.trailers, [("x-sum".to_owned(), "1".to_owned())]);
}

#[tokio::test]
async fn no_spelling_of_the_prefix_escapes_the_rewrite() {
    let (origin, gateway) = gateway(ROUTES).await;
    for (path, forwarded) in [
        ("/orders", "/v2"),
        ("/orders/", "/v2/"),
        ("/orders;a=1/x", "/v2/x"),
        ("/%6frders/x", "/v2/x"),
        ("//orders///x", "/v2/x"),
        ("/a/../orders/x", "/v2/x"),
        ("/named/x", "/x"),
        ("/named", "/"),
        ("/orders2/x", "/orders2/x"),
    ] {
        assert_eq!(gateway.get(path, "").await.status(), 200, "{path}");
        assert_eq!(origin.last_request().start, format!("GET {forwarded} HTTP/1.1"), "{path}");
    }
    assert_eq!(gateway.get("/named/x", "").await.status(), 200);
    assert_eq!(origin.last_request().field("host").as_deref(), Some("api.internal:81"));
    for path in ["/orders/..%2f..%2fx", "/orders/..;/x", "/orders/%2e%2e/%2e%2e/x"] {
        assert_eq!(gateway.get(path, "").await.status(), 400, "{path}");
    }
}

/// A request with a body keeps its framing when fields change.
#[tokio::test]
async fn changed_fields_keep_the_framing() {
    let (origin, gateway) = gateway(ROUTES).await;
    let mut client = gateway.client().await;
    for framing in ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"] {
        let response = client.ask(format!("POST /orders/x HTTP/1.1\r\nHost: a\r\n{framing}")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(origin.last_request().text(), "abc");
    }
}

#[tokio::test]
async fn http2_upstream_receives_the_changed_request() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let origin = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        respond.send_response(http::Response::new(()), true).unwrap();
        let waiting = tokio::spawn(async move { while connection.accept().await.is_some() {} });
        (request.into_parts().0, waiting)
    });
    let upstreams = format!("upstreams: {{ api: {{ targets: ['http://{address}'], protocol: http2 }} }}");
    let gateway = TestGateway::start(&format!("{upstreams}\nrequests: {{ request_id: true }}\nroutes:{ROUTES}"));
    assert_eq!(gateway.get("/orders/5?q", FIELDS).await.status(), 200);
    let (head, _waiting) = soon(origin).await.unwrap();
    assert_eq!(head.uri.to_string(), format!("http://{address}/v2/5?q"));
    let fields: &HeaderMap = &head.headers;
    assert_eq!((fields["x-fixed"].as_bytes(), fields.get("x-user")), (&b"one"[..], None));
}

/// The response of the gateway names the deadline; the upstream's own timeout is an hour.
#[tokio::test]
async fn timeout_of_a_route_ends_the_request() {
    let origin =
        Origin::start(|mut conn: OriginConnection| async move { while conn.request().await.is_some() {} }).await;
    let gateway = TestGateway::start(&format!(
        "upstreams: {{ api: {{ targets: ['http://{}'], timeouts: {{ response: 1h, total: 1h }} }} }}
routes: [{{ name: all, match: {{}}, upstream: api, timeout: 50ms, response_headers: {{ set: {{ x-a: b }} }} }}]",
        origin.address
    ));
    let response = soon(gateway.get("/", "")).await;
    assert_eq!((response.status(), response.field("x-a").as_deref()), (504, Some("b")));
    assert!(response.text().contains("deadline"), "{}", response.text());
}
