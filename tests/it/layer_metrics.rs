//! The metrics registries of a layer and its store.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use tidegate::{Config, LayerError, Metrics, RateLimitLayer, Store};
use tokio::time::timeout;
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
    assert!(lines < 30 && text.contains("renamed-299") && !text.contains("\"first\""), "{lines} lines\n{text}");
    let counted = |count| {
        format!("tidegate_decisions_total{{route=\"renamed-299\",limit=\"total\",outcome=\"allowed\"}} {count}")
    };
    assert!(has(&metrics, &counted(1)), "{text}");
    layer.replace_rules(&config("renamed-299"));
    ask(&layer).await;
    assert!(has(&metrics, &counted(2)), "{}", metrics.render());
}

fn with_limit(limit: &str) -> (RateLimitLayer, Arc<Metrics>) {
    let rules = format!("routes: [{{ name: api, match: {{}}, limits: [{{ name: total, {limit} }}] }}]");
    let metrics = Arc::new(Metrics::new());
    let config = Config::parse(&rules).expect("rules");
    (RateLimitLayer::new(&config, Arc::clone(&metrics)).expect("a layer"), metrics)
}

#[tokio::test]
async fn rejections_are_counted_like_all_responses() {
    let (layer, metrics) = with_limit("mode: OVERALL, rate: 1, interval: 1h");
    assert_eq!([ask(&layer).await, ask(&layer).await, ask(&layer).await], [200, 429, 429]);
    for line in [
        "tidegate_responses_total{route=\"api\",code=\"200\"} 1",
        "tidegate_responses_total{route=\"api\",code=\"429\"} 2",
        "tidegate_request_duration_seconds_count{route=\"api\",status=\"2xx\"} 1",
        "tidegate_request_duration_seconds_count{route=\"api\",status=\"4xx\"} 2",
    ] {
        assert!(has(&metrics, line), "{line} in {}", metrics.render());
    }
}

#[tokio::test]
async fn used_share_follows_the_decisions() {
    let used = |share| format!("tidegate_limit_used_ratio{{route=\"api\",limit=\"total\"}} {share}");
    for (algorithm, shares) in [
        ("rate: 4", ["0.25", "0.5"]),
        ("rate: 4, algorithm: fixed_window", ["0.25", "0.5"]),
        ("rate: 1, algorithm: gcra, burst: 4", ["0.25", "0.5"]),
    ] {
        let (layer, metrics) = with_limit(&format!("mode: OVERALL, interval: 1h, {algorithm}"));
        assert!(!metrics.render().contains("limit_used_ratio{"));
        for share in shares {
            assert_eq!(ask(&layer).await, 200);
            assert!(has(&metrics, &used(share)), "{algorithm}: {share} in {}", metrics.render());
        }
    }
    let (layer, metrics) = with_limit("mode: PER_CLIENT, client: path, rate: 4, interval: 1h");
    ask(&layer).await;
    assert!(!metrics.render().contains("limit_used_ratio{"), "{}", metrics.render());
}

#[tokio::test(start_paused = true)]
async fn waits_for_permits_are_counted_by_outcome() {
    let waited = |outcome| format!("tidegate_permit_wait_seconds_count{{route=\"api\",outcome=\"{outcome}\"}} 1");
    let (layer, metrics) = with_limit("mode: OVERALL, rate: 1, interval: 1s, max_wait: 1s, queue: 1");
    assert_eq!(ask(&layer).await, 200);
    assert!(!metrics.render().contains("permit_wait_seconds_count"), "{}", metrics.render());
    assert_eq!(ask(&layer).await, 200);
    assert!(has(&metrics, &waited("admitted")), "{}", metrics.render());
    let waiting = ask(&layer);
    assert!(timeout(Duration::from_millis(1), waiting).await.is_err());
    assert!(has(&metrics, &waited("abandoned")), "{}", metrics.render());
    // Polled in this order: the request waits when the layer stops.
    let (status, ()) = tokio::join!(biased; ask(&layer), async { layer.stop_waiting() });
    assert_eq!(status, 429);
    assert!(has(&metrics, &waited("rejected")), "{}", metrics.render());
}
