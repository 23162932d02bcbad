//! Hooks of a layer: client keys from extensions, and the program's own responses to rejected requests.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tidegate::build::{By, Client, Limit, MINUTE, Route, Rules, Tier};
use tidegate::redisson::{Mode, RateConfig, RateLimiter};
use tidegate::{ClientKey, ClientKeys, Config, Gateway, RateLimitLayer, Rejection, Store, Unmatched};
use tower::ServiceExt;

const RULES: &str = "
routes:
  - name: tenants
    match: { path: /tenants }
    limits:
      - { name: per-tenant, mode: PER_CLIENT, client: extension, rate: 1, interval: 1m }
      - { name: total, mode: OVERALL, rate: 3, interval: 1m, shadow: true }
";

fn request(path: &str, key: Option<&str>) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).expect("a request");
    if let Some(key) = key {
        request.extensions_mut().insert(ClientKey(key.to_owned()));
    }
    request
}

async fn ask(layer: &RateLimitLayer, request: Request<Body>) -> Response<Body> {
    let app = Router::new().fallback(async || "handled").layer(layer.clone());
    app.oneshot(request).await.expect("a response")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn client_key_from_extensions_has_its_own_bucket() {
    let layer = RateLimitLayer::from_yaml(RULES).expect("rules");
    let mut statuses = Vec::new();
    for key in [Some("a"), Some("b"), Some("a"), Some(""), None] {
        statuses.push(ask(&layer, request("/tenants", key)).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 400, 400]);
}

#[tokio::test]
async fn tier_of_a_client_comes_from_its_keys() {
    let limit = Limit::per_client("per-user", Client::extension_named("user")).tier(By::extension("plan"), "free");
    let rules = Rules::new().tier("free", Tier::new(1, MINUTE)).tier("pro", Tier::new(2, MINUTE));
    let layer = RateLimitLayer::from_rules(rules.route(Route::new("all").limit(limit))).expect("a layer");
    let ask = async |user: &str, plan: &str| {
        let mut asked = request("/", None);
        asked.extensions_mut().insert(ClientKeys::new().with("user", user).with("plan", plan));
        ask(&layer, asked).await.status().as_u16()
    };
    assert_eq!([ask("a", "pro").await, ask("a", "pro").await, ask("a", "pro").await], [200, 200, 429]);
    assert_eq!([ask("b", "free").await, ask("b", "free").await, ask("c", "none").await], [200, 429, 200]);
}

#[test]
fn gateway_rejects_client_extension_at_load() {
    let gateway =
        format!("listen: 127.0.0.1:0\nupstreams: {{ up: {{ targets: [builtin:echo] }} }}\n{RULES}    upstream: up\n");
    let problems = Gateway::parse_config(&gateway).expect_err("an error").to_string();
    assert!(problems.contains("`extension` works only in a layer"), "{problems}");
    assert!(problems.contains("help: for a gateway use `ip`"), "{problems}");
    assert!(Config::parse(RULES).is_ok());
    let named = gateway.replace("client: extension", "client: extension:tenant");
    let problems = Gateway::parse_config(&named).expect_err("an error").to_string();
    assert!(problems.contains("`extension` works only in a layer"), "{problems}");
    let rate = gateway.replace("client: extension, rate: 1", "client: ip, rate: { by: extension:plan, default: 1 }");
    let problems = Gateway::parse_config(&rate).expect_err("an error").to_string();
    assert!(problems.contains("`extension` works only in a layer") && problems.ends_with("1 error"), "{problems}");
}

#[tokio::test]
async fn hook_makes_the_response_to_a_rejected_request() {
    let hook = |rejection: Rejection<'_>| {
        let Rejection { status, route, limits, retry_after, .. } = &rejection;
        let body = format!("{status} {route:?} {limits:?} {retry_after:?} {} {}", rejection.method, rejection.uri);
        Response::builder().status(StatusCode::IM_A_TEAPOT).header("x-own", "1").body(body).expect("a response")
    };
    let layer = RateLimitLayer::builder().on_reject(hook).unmatched(Unmatched::Reject).store(Store::memory());
    let layer = layer.from_yaml(RULES).expect("rules");
    assert_eq!(ask(&layer, request("/tenants", Some("a"))).await.status(), StatusCode::OK);
    let response = ask(&layer, request("/tenants", Some("a"))).await;
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let fields = response.headers();
    assert!(fields.contains_key("x-own") && fields.contains_key("ratelimit-policy"), "{fields:?}");
    let seconds = fields[RETRY_AFTER].to_str().expect("text").to_owned();
    let expected = format!("429 Too Many Requests Some(\"tenants\") [\"per-tenant\"] Some({seconds}s) GET /tenants");
    assert_eq!(text(response).await, expected);

    let missing = text(ask(&layer, request("/tenants", None)).await).await;
    assert_eq!(missing, "400 Bad Request Some(\"tenants\") [] None GET /tenants");
    let unmatched = text(ask(&layer, request("/other", None)).await).await;
    assert_eq!(unmatched, "404 Not Found None [] None GET /other");
}

/// The service knows the user only from the extensions that it has inserted.
#[tokio::test]
async fn hook_reads_extensions_policy_and_remaining_permits() {
    let hook = |rejection: Rejection<'_>| {
        let Rejection { remaining, policy, extensions, .. } = rejection;
        let user = extensions.get::<ClientKey>().map(|key| key.0.as_str());
        Response::builder().status(429).body(format!("{user:?} {remaining:?} {policy:?}")).expect("a response")
    };
    let limit = Limit::per_client("per-user", Client::extension()).rate(3, MINUTE);
    let limit = limit.permits_from_header("x-cost", 1, 3);
    let layer = RateLimitLayer::builder().on_reject(hook).from_rules(limit).expect("a layer");
    let ask = async |cost: &'static str| {
        let mut asked = request("/", Some("ada"));
        asked.headers_mut().insert("x-cost", http::HeaderValue::from_static(cost));
        text(ask(&layer, asked).await).await
    };
    assert_eq!(ask("2").await, "handled");
    assert_eq!(ask("2").await, r#"Some("ada") Some(1) Some("\"per-user\";q=3;w=60")"#);
    assert_eq!(ask("4").await, r#"Some("ada") None None"#, "400: above the maximum");
}

#[tokio::test]
async fn hook_sets_retry_after_except_for_grpc() {
    let hook =
        |_: Rejection<'_>| Response::builder().status(429).header(RETRY_AFTER, "7").body("own").expect("a response");
    let layer = RateLimitLayer::builder().on_reject(hook).from_yaml(RULES).expect("rules");
    ask(&layer, request("/tenants", Some("a"))).await;
    let response = ask(&layer, request("/tenants", Some("a"))).await;
    let retry_after: Vec<_> = response.headers().get_all(RETRY_AFTER).iter().collect();
    assert_eq!(retry_after, ["7"]);
    let mut call = request("/tenants", Some("a"));
    *call.method_mut() = http::Method::POST;
    call.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
    let response = ask(&layer, call).await;
    assert_eq!(
        (response.status(), &response.headers()["grpc-status"]),
        (StatusCode::OK, &"8".parse().expect("a value"))
    );
}

/// A program that responds for a limiter needs the same values as the layer.
#[tokio::test(start_paused = true)]
async fn limiter_returns_the_values_of_retry_after() {
    let limiter = RateLimiter::new(Store::memory(), "mails").expect("a limiter");
    let rate = RateConfig::new(Mode::Overall, 3, Duration::from_secs(10)).expect("a rate");
    limiter.set_rate(&rate).await.expect("set");
    let taken = limiter.try_acquire(2).await.expect("a decision");
    assert_eq!((taken.granted, taken.remaining, taken.wait), (true, 1, Duration::ZERO));
    tokio::time::advance(Duration::from_millis(2_500)).await;
    let rejected = limiter.try_acquire(2).await.expect("a decision");
    assert_eq!((rejected.granted, rejected.remaining, rejected.wait), (false, 1, Duration::from_millis(7_500)));
    tokio::time::advance(rejected.wait).await;
    assert!(limiter.try_acquire(2).await.expect("a decision").granted);
}
