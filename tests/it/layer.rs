//! The layer in an axum service, with a rule file whose routes have no upstream.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sfv::{BareItem, Item, ListEntry, Parser};
use tidegate::redisson::{Mode, RateConfig, RateLimiter, TrySetRate};
use tidegate::{Config, LayerError, Metrics, Peer, RateLimitLayer, RateLimitLayerBuilder, Store, Unmatched};
use tower::ServiceExt;

use crate::support::granted;

const RULES: &str = "
routes:
  - name: hello
    match: { path: /hello }
    limits:
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }
      - { name: total, mode: OVERALL, rate: 100, interval: 1h }
  - name: files
    match: { path: /files/** }
  - name: upload
    match: { path: /upload, methods: [POST] }
";

fn layer() -> RateLimitLayer {
    RateLimitLayer::from_yaml(RULES).expect("valid rules")
}

/// Returns a router with the layer. Its handlers echo the path or the body.
fn app() -> Router {
    app_with(layer())
}

fn sanitizing(rules: &str) -> RateLimitLayer {
    RateLimitLayer::builder().sanitize(true).from_yaml(rules).expect("valid rules")
}

fn app_with(layer: RateLimitLayer) -> Router {
    let handlers = Router::new()
        .route("/hello", get(async || "hello"))
        .route("/files/{*path}", get(async |uri: Uri| uri.to_string()))
        .route("/upload", post(async |body: Bytes| body))
        .fallback(async || (StatusCode::IM_A_TEAPOT, "no handler"));
    Router::new().fallback_service(handlers).layer(layer)
}

fn request(path: &str) -> Request<Body> {
    from(Ipv4Addr::new(192, 0, 2, 1), path)
}

fn from(peer: Ipv4Addr, path: &str) -> Request<Body> {
    let request = Request::get(path).header("host", "example.com").extension(Peer(IpAddr::V4(peer)));
    request.body(Body::empty()).expect("a request")
}

async fn ask(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.expect("a response")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Returns the only item of a field, with its parameters as numbers.
fn item(headers: &HeaderMap, name: &str) -> (String, Vec<(String, i64)>) {
    let values: Vec<_> = headers.get_all(name).iter().collect();
    let [value] = values.as_slice() else { panic!("{name}: {values:?}") };
    let list: sfv::List = Parser::new(value.as_bytes()).parse().expect("a list of structured fields");
    let [ListEntry::Item(Item { bare_item: BareItem::String(limit), params })] = list.as_slice() else {
        panic!("{name}: {list:?}")
    };
    let number = |value: &BareItem| value.as_integer().expect("an integer").into();
    (limit.as_str().to_owned(), params.iter().map(|(key, value)| (key.to_string(), number(value))).collect())
}

fn numbers(list: &[(&str, i64)]) -> Vec<(String, i64)> {
    list.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

/// Returns the limit in `RateLimit`, and its remaining permits.
fn remaining(headers: &HeaderMap) -> (String, i64) {
    let (limit, parameters) = item(headers, "ratelimit");
    let [(r, left), (t, reset)] = parameters.as_slice() else { panic!("{parameters:?}") };
    assert_eq!((r.as_str(), t.as_str()), ("r", "t"));
    assert!((3_590..=3_600).contains(reset), "{reset}");
    (limit, *left)
}

#[tokio::test]
async fn rate_limit_fields_count_down_until_retry_after() {
    let app = app();
    for left in [1, 0] {
        let response = ask(&app, request("/hello")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers().get("retry-after"), None);
        let headers = response.headers();
        assert_eq!(item(headers, "ratelimit-policy"), ("per-ip".into(), numbers(&[("q", 2), ("w", 3_600)])));
        assert_eq!(remaining(headers), ("per-ip".into(), left));
        assert_eq!(text(response).await, "hello");
    }
    let response = ask(&app, request("/hello")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers();
    assert_eq!(item(headers, "ratelimit-policy"), ("per-ip".into(), numbers(&[("q", 2), ("w", 3_600)])));
    assert_eq!(remaining(headers), ("per-ip".into(), 0));
    let retry_after: u64 = headers["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((3_590..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(headers["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_str(&text(response).await).expect("json");
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["per-ip"])));
}

#[tokio::test]
async fn each_client_has_its_own_bucket() {
    let app = app();
    for host in 1..=5 {
        let response = ask(&app, from(Ipv4Addr::new(198, 51, 100, host), "/hello")).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn clones_of_a_layer_share_buckets() {
    let layer = layer();
    let app = || Router::new().route("/hello", get(async || "hello")).layer(layer.clone());
    let mut statuses = Vec::new();
    for app in [app(), app(), app()] {
        statuses.push(ask(&app, request("/hello")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn request_without_a_route_reaches_the_handler_normalized() {
    let handlers = Router::new().fallback(async |uri: Uri| uri.to_string());
    let app = Router::new().fallback_service(handlers).layer(sanitizing(RULES));
    for _ in 0..5 {
        let response = ask(&app, request("/%65lsewhere/../else//where?q=%41")).await;
        assert_eq!((response.status(), response.headers().get("ratelimit")), (StatusCode::OK, None));
        assert_eq!(text(response).await, "/else/where?q=%41");
    }
    assert_eq!(ask(&app, request("/files%2fa")).await.status(), StatusCode::BAD_REQUEST, "`%2f` is ambiguous");
}

#[tokio::test]
async fn layer_can_reject_requests_without_a_route() {
    let layer = RateLimitLayer::builder().unmatched(Unmatched::Reject).from_yaml(RULES).expect("valid rules");
    let app = Router::new().fallback(async || "handled").layer(layer.for_worker());
    let response = ask(&app, request("/elsewhere")).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers().get("ratelimit"), None);
}

/// Returns a request without a peer and without a host, as in the unit tests of a service.
fn bare(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

async fn statuses(app: &Router, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(ask(app, bare(path)).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn request_without_a_peer_meets_limits_without_address() {
    let rules = "
routes:
  - name: elsewhere
    match: { host: example.com }
  - name: total
    match: { path: /total }
    limits: [{ name: total, mode: OVERALL, rate: 2, interval: 1h }]
  - name: key
    match: { path: /key }
    limits: [{ name: key, mode: PER_CLIENT, client: 'header:x-key', on_missing_client: skip, rate: 1, interval: 1h }]
  - name: deny
    match: { path: /deny }
    limits: [{ name: ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]
  - name: fall-back
    match: { path: /fall-back }
    limits: [{ name: key, mode: PER_CLIENT, client: 'header:x-key', on_missing_client: ip, rate: 1, interval: 1h }]
  - name: skip
    match: { path: /skip }
    limits:
      - { name: ip, mode: PER_CLIENT, client: [ip, path], on_missing_client: skip, rate: 1, interval: 1h }
      - { name: total, mode: OVERALL, rate: 2, interval: 1h }
";
    let layer = RateLimitLayer::from_yaml(rules).expect("valid rules");
    let app = Router::new().fallback(async || "handled").layer(layer);
    assert_eq!(statuses(&app, "/total", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/key", 2).await, [200, 200]);
    assert_eq!(statuses(&app, "/deny", 1).await, [400]);
    assert_eq!(statuses(&app, "/fall-back", 1).await, [400]);
    assert_eq!(statuses(&app, "/skip", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn two_hosts_are_rejected_and_none_is_accepted() {
    let app = Router::new().fallback(async || "handled").layer(layer());
    let mut request = bare("/files/a");
    for host in ["a.example", "b.example"] {
        request.headers_mut().append("host", host.parse().expect("a value"));
    }
    assert_eq!(ask(&app, request).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(ask(&app, bare("/files/a")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn extended_connect_is_limited_like_a_get() {
    let limits = "limits: [{ name: total, mode: OVERALL, rate: 2, interval: 1h }]";
    let rules = format!("routes: [{{ name: socket, match: {{ path: /socket, methods: [GET] }}, {limits} }}]");
    let layer = RateLimitLayer::from_yaml(&rules).expect("valid rules");
    let app = Router::new().fallback(async |method: Method| [("x-method", method.to_string())]).layer(layer);
    let ask = async |method: &str, target: &str| {
        let request = Request::builder().method(method).uri(target).body(Body::empty()).expect("a request");
        app.clone().oneshot(request).await.expect("a response")
    };
    assert_eq!(ask("CONNECT", "https://a.example/socket").await.headers()["x-method"], "CONNECT");
    assert_eq!(ask("GET", "/socket").await.status(), StatusCode::OK);
    assert_eq!(ask("CONNECT", "https://a.example/socket").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask("CONNECT", "a.example:443").await.status(), StatusCode::NOT_IMPLEMENTED, "a tunnel");
}

#[tokio::test]
async fn layers_and_limiters_can_share_a_store() {
    let store = Store::memory();
    let limited = |layer: RateLimitLayerBuilder| {
        let layer = layer.store(store.clone()).from_yaml(RULES).expect("valid rules");
        Router::new().fallback(async || "handled").layer(layer)
    };
    let (one, other) = (limited(RateLimitLayer::builder()), limited(RateLimitLayer::builder()));
    let mut statuses = Vec::new();
    for app in [&one, &other, &one] {
        statuses.push(ask(app, request("/hello")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429], "two layers share the buckets of a rule file");
    let limiter = RateLimiter::new(store.clone(), "mails").expect("a limiter");
    let rate = RateConfig::new(Mode::Overall, 1, Duration::from_secs(3600)).expect("a rate");
    assert_eq!(limiter.try_set_rate(&rate).await.expect("a response"), TrySetRate::Set);
    assert_eq!((granted(&limiter, 1).await, granted(&limiter, 1).await), (Ok(true), Ok(false)));
}

#[tokio::test]
async fn sanitizing_layer_routes_by_the_normalized_path() {
    let app = app_with(sanitizing(RULES));
    let response = ask(&app, request("/files/./a//%62/../c%3bd;e?q=%41")).await;
    assert_eq!(text(response).await, "/files/a/c%3Bd;e?q=%41");
    // Three spellings of one path take from one bucket, and all of them reach its handler.
    let mut statuses = Vec::new();
    for path in ["/files/../hello", "//hello", "/%68ello"] {
        statuses.push(ask(&app, request(path)).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn handler_in_a_router_sees_the_normalized_path() {
    let handler = async |uri: Uri| uri.to_string();
    let app = Router::new().route("/files/{*path}", get(handler)).layer(sanitizing(RULES));
    assert_eq!(text(ask(&app, request("/files/./a")).await).await, "/files/a");
}

/// A body that is `Send` but not `Sync`.
struct NotSync(Cell<Option<Bytes>>);

impl http_body::Body for NotSync {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[tokio::test]
async fn bodies_need_not_be_sync() {
    let body = Body::new(NotSync(Cell::new(Some("there and back".into()))));
    let request = Request::post("/upload").header("host", "example.com").extension(Peer(Ipv4Addr::LOCALHOST.into()));
    let request = request.body(body).expect("a request");
    let response = tokio::spawn(async move { text(ask(&app(), request).await).await }); // the future must be `Send`
    assert_eq!(response.await.expect("a response"), "there and back");

    let service = tower::service_fn(async |request: Request<NotSync>| {
        Ok::<_, std::convert::Infallible>(Response::new(request.into_body()))
    });
    let service = tower::Layer::layer(&layer(), service);
    let request = Request::post("/upload").header("host", "example.com").extension(Peer(Ipv4Addr::LOCALHOST.into()));
    let request = request.body(NotSync(Cell::new(Some("as it is".into())))).expect("a request");
    let response = tokio::spawn(service.oneshot(request)).await.expect("a task").expect("a response");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "as it is");
}

#[test]
fn invalid_rules_return_a_layer_error() {
    let error = RateLimitLayer::from_yaml("routes: []").expect_err("no routes");
    assert!(matches!(error, LayerError::Text(_)), "{error:?}");
    let error = RateLimitLayer::from_file("tests/fixtures/config/none.yaml").expect_err("no file");
    assert!(matches!(error, LayerError::File(_)) && error.to_string().contains("none.yaml"), "{error}");
    assert!(RateLimitLayer::from_file("config/tidegate.yaml").is_ok());
}

#[tokio::test]
async fn connection_naming_a_field_of_rules_is_rejected() {
    let rules = "
routes:
  - name: all
    match: { path: /** }
    limits:
      - { name: own, mode: PER_CLIENT, client: 'header:X-Api-Key', rate: 1, interval: 1h }
";
    let layer = RateLimitLayer::from_yaml(rules).expect("valid rules");
    let seen = async |headers: HeaderMap| format!("{:?} {:?}", headers.get("connection"), headers.get("upgrade"));
    let app = Router::new().route("/", get(seen)).layer(layer);
    let asked = |connection: &'static str| {
        let mut request = request("/");
        for (name, value) in [("x-api-key", "a"), ("connection", connection), ("upgrade", "websocket")] {
            request.headers_mut().insert(name, value.parse().expect("a value"));
        }
        request
    };
    assert_eq!(ask(&app, asked("Upgrade, X-Api-Key")).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(text(ask(&app, asked("Upgrade")).await).await, r#"Some("Upgrade") Some("websocket")"#);
}

#[tokio::test]
async fn cancelled_request_is_counted_by_the_layer() {
    let metrics = Arc::new(Metrics::new());
    let config = Config::parse(RULES).expect("valid rules");
    let layer = RateLimitLayer::new(&config, Arc::clone(&metrics)).expect("a layer");
    let handlers = Router::new().route("/hello", get(async || std::future::pending::<&str>().await));
    let app = Router::new().fallback_service(handlers).layer(layer);
    let mut asking = Box::pin(ask(&app, request("/hello")));
    assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(asking);
    let text = metrics.render();
    for line in [
        r#"tidegate_request_duration_seconds_count{route="hello",status="499"} 1"#,
        r#"tidegate_decisions_total{route="hello",limit="per-ip",outcome="allowed"} 1"#,
        r#"tidegate_rejected_total{cause="client_gone"} 1"#,
    ] {
        assert!(text.lines().any(|other| other == line), "no `{line}` in\n{text}");
    }
}

#[tokio::test]
async fn sanitizing_layer_removes_untrusted_fields() {
    let rules = "
clients: { trusted_proxies: [192.0.2.0/24] }
routes:
  - name: all
    match: { path: /** }
    limits:
      - { name: own, mode: PER_CLIENT, client: 'header:X-Real-IP', on_missing_client: skip, rate: 1, interval: 1h }
";
    let layer = sanitizing(rules);
    let seen =
        async |headers: HeaderMap| format!("{:?} {}", headers.get("x-real-ip"), headers.contains_key("x_real_ip"));
    let app = Router::new().route("/", get(seen)).layer(layer);
    let asked = |peer| {
        let mut request = from(peer, "/");
        for name in ["x-real-ip", "x_real_ip"] {
            request.headers_mut().insert(name, "6.6.6.6".parse().expect("a value"));
        }
        request
    };
    for _ in 0..2 {
        let untrusted = ask(&app, asked(Ipv4Addr::new(198, 51, 100, 1))).await;
        assert_eq!(untrusted.status(), StatusCode::OK, "the limit trusted a field of an untrusted client");
        assert_eq!(text(untrusted).await, "None false");
    }
    let proxied = || ask(&app, asked(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(text(proxied().await).await, r#"Some("6.6.6.6") false"#);
    assert_eq!(proxied().await.status(), StatusCode::TOO_MANY_REQUESTS);
}
