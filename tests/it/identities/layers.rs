//! API keys in a layer of another service.

use axum::Router;
use axum::body::Body;
use http::Request;
use tidegate::build::{ApiKeys, Limit, MINUTE, Route, Rules};
use tidegate::{Gateway, RateLimitLayer};
use tower::ServiceExt;

use super::key_file;

#[tokio::test]
async fn only_layers_of_the_gateway_verify_keys() {
    let file = key_file("layer", "k-one: { id: one }\n");
    let rules = format!(
        "identities: {{ keys: {{ header: X-Api-Key, file: {} }} }}\n\
         routes: [{{ name: all, match: {{}}, require: keys }}]",
        file.path()
    );
    let layer = Gateway::layer_builder().from_yaml(&rules).expect("rules");
    let ask = async |key: &str| {
        let app = Router::new().fallback(async || "handled").layer(layer.clone());
        let request = Request::get("/").header("x-api-key", key).body(Body::empty()).expect("a request");
        app.oneshot(request).await.expect("a response").status().as_u16()
    };
    assert_eq!([ask("k-one").await, ask("k-two").await], [200, 401]);
    let error = RateLimitLayer::from_yaml(&rules).expect_err("nothing verifies the keys").to_string();
    assert!(error.contains("1:13: `identities` needs a program that verifies credentials"), "{error}");
    assert!(error.contains("build the layer with `Gateway::layer_builder()`"), "{error}");

    let route = Route::new("all").limit(Limit::overall("total").rate(1, MINUTE));
    let built = Rules::new().api_keys(ApiKeys::in_header(file.path(), "x-api-key")).route(route);
    assert!(Gateway::layer_builder().from_rules(built.clone()).is_ok());
    assert!(RateLimitLayer::from_rules(built).is_err());
}
