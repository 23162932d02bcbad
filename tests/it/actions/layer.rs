//! Actions in a Tower layer around an axum router.

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tidegate::{RateLimitLayer, Rejection};
use tower::ServiceExt;

const RULES: &str = r#"
routes:
  - { name: old, match: { path: /old/** }, redirect: { to: "https://example.com{path}{query}", status: 308 } }
  - { name: robots, match: { path: /robots.txt }, respond: { status: 403, body: "no" } }
  - name: rest
    match: { path: /** }
    limits: [{ name: total, mode: OVERALL, rate: 1, interval: 1h }]
    response_headers: { set: { x-route: "{route}" } }
    reject: { body: '{"limit":"{limit}","path":"{path}"}' }
"#;

async fn ask(layer: &RateLimitLayer, path: &str) -> Response<Body> {
    let app = Router::new().fallback(async || "handled").layer(layer.clone());
    app.oneshot(Request::get(path).body(Body::empty()).expect("a request")).await.expect("a response")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn layer_redirects_and_responds() {
    let hook = |_: Rejection<'_>| Response::builder().status(StatusCode::IM_A_TEAPOT).body("hook").expect("a response");
    let layer = RateLimitLayer::builder().on_reject(hook).from_yaml(RULES).expect("rules");
    let redirect = ask(&layer, "/old/x?y").await;
    assert_eq!(redirect.status(), StatusCode::PERMANENT_REDIRECT);
    assert_eq!(redirect.headers()["location"], "https://example.com/old/x?y");
    let fixed = ask(&layer, "/robots.txt").await;
    assert_eq!((fixed.status().as_u16(), text(fixed).await.as_str()), (403, "no"));
    let handled = ask(&layer, "/x").await;
    assert_eq!(handled.headers()["x-route"], "rest");
    assert_eq!(text(handled).await, "handled");
    // The program's own hook takes precedence over `reject`.
    assert_eq!(ask(&layer, "/x").await.status(), StatusCode::IM_A_TEAPOT);
}

#[tokio::test]
async fn layer_rejects_with_the_body_of_the_route() {
    let layer = RateLimitLayer::from_yaml(RULES).expect("rules");
    assert_eq!(ask(&layer, "/x").await.status(), StatusCode::OK);
    let rejected = ask(&layer, "/x").await;
    assert_eq!(rejected.headers()["x-route"], "rest");
    assert_eq!((rejected.status().as_u16(), text(rejected).await.as_str()), (429, r#"{"limit":"total","path":"/x"}"#));
}
