//! The layer passes requests on unchanged, and applies the limits of each interpretation of their paths.

use std::net::{IpAddr, Ipv4Addr};

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use tidegate::{Peer, RateLimitLayer};
use tower::ServiceExt;

/// Responds with the target and the fields that a handler gets.
fn app(rules: &str) -> Router {
    app_with(RateLimitLayer::from_yaml(rules).expect("rules"))
}

fn app_with(layer: RateLimitLayer) -> Router {
    let handler = async |uri: Uri, headers: HeaderMap| {
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        format!("{uri} {}", names.join(","))
    };
    Router::new().fallback(handler).layer(layer)
}

async fn get(app: &Router, target: &str, fields: &[(&str, &str)]) -> (StatusCode, String) {
    let peer = Peer(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let mut request = Request::get(target).extension(peer);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let response = app.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("a response");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn statuses(app: &Router, targets: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for target in targets {
        statuses.push(get(app, target, &[]).await.0.as_u16());
    }
    statuses
}

const LOGIN: &str = "
routes:
  - name: login
    match: { path: /auth/login }
    limits: [{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }]
";

/// Regression test: with one rule for `/auth/login`, requests to `/echo` lost fields, `%2F` was 400, and `//`
/// collapsed.
#[tokio::test]
async fn layer_leaves_unlimited_requests_alone() {
    let app = app(LOGIN);
    let fields = [("api_key", "k"), ("x-forwarded-for", "203.0.113.9"), ("x-real-ip", "203.0.113.9")];
    for target in ["/echo", "/echo//a%2Fb/../%7Ec;v=1?q=%41", "/a/..%2f..%5cb", "/%00%ff", "/echo?q=\u{e9}"] {
        let body = format!("{target} api_key,x-forwarded-for,x-real-ip");
        assert_eq!(get(&app, target, &fields).await, (StatusCode::OK, body));
    }
    let connection = [("connection", "host"), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(get(&app, "/echo", &connection).await.0, StatusCode::OK);
}

#[tokio::test]
async fn limited_request_reaches_its_handler_unchanged() {
    let app = app(LOGIN);
    let body = "//auth/%6cogin?a=b x-forwarded-for,x_real_ip".to_owned();
    let fields = [("x_real_ip", "k"), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(get(&app, "//auth/%6cogin?a=b", &fields).await, (StatusCode::OK, body));
    assert_eq!(statuses(&app, &["/auth/./login", "/auth/login"]).await, [200, 429], "all spellings have one bucket");
}

#[tokio::test]
async fn ambiguous_value_meets_limits_of_all_readings() {
    let app = app(&LOGIN.replace("path: /auth/login }", "path: /auth/login, query: { v: '2' } }"));
    let targets =
        ["/auth/login?v=2&v=3", "/x/..%2fauth/login?v=2&v=3", "//auth/login?%76=2", "/auth/login?v=3", "/a?v=2&v=3"];
    assert_eq!(statuses(&app, &targets).await, [400, 400, 200, 200, 200]);
}

#[tokio::test]
async fn ambiguous_path_meets_limits_of_all_readings() {
    for target in
        ["/x/..%2fauth/login", "/auth%2flogin", "/auth%5Clogin", "/..;/auth/login", "/x%252f..%252fauth/login"]
    {
        let app = app(LOGIN);
        assert_eq!(statuses(&app, &[target, target, target, "/auth/login"]).await, [200, 200, 429, 429], "{target}");
    }
}

/// A router that resolves no dots serves `/files/../cheap` by the handler of `/files/{path}`.
#[tokio::test]
async fn dots_do_not_lead_around_a_limit() {
    let limit = |name: &str, rate: u32| format!("[{{ name: {name}, mode: OVERALL, rate: {rate}, interval: 1h }}]");
    let route = |name: &str, rate| {
        format!("  - {{ name: {name}, match: {{ path: '/{name}/**' }}, limits: {} }}\n", limit(name, rate))
    };
    let free = "  - { name: free, match: { path: '/**' } }\n";
    let app = app(&format!("routes:\n{}{}{free}", route("files", 1), route("cheap", 9)));
    assert_eq!(statuses(&app, &["/files/../a", "/files/%2e%2E/a", "/files/a"]).await, [200, 429, 429]);
    let (status, body) = get(&app, "/files/../cheap/a", &[]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("dot segments lead to another route"), "{body}");
    assert_eq!(statuses(&app, &["/cheap/../free", "//cheap/a", "/cheap/./a"]).await, [200; 3]);
}

#[tokio::test]
async fn ambiguous_fields_are_rejected_only_under_a_limit() {
    let app = app(LOGIN);
    let fields = [("connection", "close, x-forwarded-for")];
    assert_eq!(get(&app, "/echo", &fields).await.0, StatusCode::OK);
    assert_eq!(get(&app, "/auth/login", &fields).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(get(&app, "/auth/login?q=\u{e9}", &[]).await.0, StatusCode::BAD_REQUEST);
}

/// The handler sees the field, and the limit does not trust it.
#[tokio::test]
async fn limit_ignores_a_field_that_its_handler_sees() {
    let app = app("
clients: { trusted_proxies: [198.51.100.0/24] }
routes:
  - name: all
    match: { path: /** }
    limits: [{ name: own, mode: PER_CLIENT, client: 'header:X-Real-IP', on_missing_client: ip, rate: 2, interval: 1h }]
");
    for number in ["1", "2", "3"] {
        let (status, body) = get(&app, "/", &[("x-real-ip", number)]).await;
        match number {
            "3" => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
            _ => assert_eq!((status, body.as_str()), (StatusCode::OK, "/ x-real-ip")),
        }
    }
}

#[tokio::test]
async fn server_wide_options_reach_the_handler() {
    let request = Request::builder().method("OPTIONS").uri("*").body(Body::empty()).expect("a request");
    let app = Router::new().fallback(async || StatusCode::IM_A_TEAPOT);
    let app = app.layer(RateLimitLayer::from_yaml(LOGIN).expect("rules"));
    assert_eq!(app.oneshot(request).await.expect("a response").status(), StatusCode::IM_A_TEAPOT);
}

#[tokio::test]
async fn sanitizing_layer_applies_encoded_slash() {
    for (word, target) in [("reject", None), ("keep", Some("/files%2Fa;v=1 ")), ("decode", Some("/files/a;v=1 "))] {
        let rules = format!("requests: {{ encoded_slash: {word} }}\n{LOGIN}");
        let layer = RateLimitLayer::builder().sanitize(true).from_yaml(&rules).expect("rules");
        let (status, body) = get(&app_with(layer), "/files%2fa;v=1", &[]).await;
        assert_eq!(status == StatusCode::BAD_REQUEST, target.is_none(), "{word}");
        assert!(target.is_none_or(|target| body == target), "{word}: {body}");
    }
}
