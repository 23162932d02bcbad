//! The metrics registries of a layer and its store.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use tidegate::{Config, LayerError, Metrics, RateLimitLayer, Store};
use tower::ServiceExt;

fn config(route: &str) -> Config {
    let limits = "[{ name: total, mode: OVERALL, rate: 100, interval: 1h }]";
    Config::parse(&format!("routes: [{{ name: {route}, match: {{}}, limits: {limits} }}]")).expect("rules")
}

async fn ask(layer: &RateLimitLayer) -> u16 {
    let app = Router::new().fallback(async || "handled").layer(layer.clone());
    app.oneshot(Request::get("/").body(Body::empty()).expect("a request")).await.expect("a response").status().as_u16()
}

fn has(metrics: &Metrics, line: &str) -> bool {
    metrics.render().lines().any(|other| other == line)
}

/// Regression test: the metrics of the layer had `tidegate_store_up 1` while Redis was down.
#[tokio::test]
async fn layer_and_store_share_a_metrics_registry() {
    let dead = || Store::redis_builder("redis://:hush@127.0.0.1:1");
    let metrics = Arc::new(Metrics::new());
    let store = dead().open().expect("a store");
    let error = RateLimitLayer::builder().store(store).metrics(Arc::clone(&metrics)).from_config(&config("a"));
    let error = error.expect_err("two registries");
    assert!(matches!(error, LayerError::Metrics { .. }), "{error:?}");
    let message = "store `redis://***@127.0.0.1:1` and the layer have different metrics: \
                   give the same `Metrics` to both builders";
    assert_eq!(error.to_string(), message);

    for given in [None, Some(Arc::clone(&metrics))] {
        let store = dead().metrics(Arc::clone(&metrics)).open().expect("a store");
        let builder = RateLimitLayer::builder().store(store);
        let builder = given.into_iter().fold(builder, tidegate::RateLimitLayerBuilder::metrics);
        let layer = builder.from_config(&config("a")).expect("a layer");
        assert_eq!(ask(&layer).await, 200);
        assert!(has(&metrics, "tidegate_store_up 0"), "{}", metrics.render());
    }
}

/// Regression test: 300 renamed routes left 5,153 lines.
#[tokio::test]
async fn replaced_rules_remove_series_and_keep_counts() {
    let metrics = Arc::new(Metrics::new());
    let layer = RateLimitLayer::new(&config("first"), Arc::clone(&metrics)).expect("a layer");
    ask(&layer).await;
    for number in 0..300 {
        layer.replace_rules(&config(&format!("renamed-{number}")));
        assert_eq!(ask(&layer).await, 200);
    }
    let text = metrics.render();
    let lines = text.lines().filter(|line| line.contains("route=\"")).count();
    assert!(lines < 30 && text.contains("renamed-299") && !text.contains("first"), "{lines} lines\n{text}");
    let counted = |count| {
        format!("tidegate_decisions_total{{route=\"renamed-299\",limit=\"total\",outcome=\"allowed\"}} {count}")
    };
    assert!(has(&metrics, &counted(1)), "{text}");
    layer.replace_rules(&config("renamed-299"));
    ask(&layer).await;
    assert!(has(&metrics, &counted(2)), "{}", metrics.render());
}
