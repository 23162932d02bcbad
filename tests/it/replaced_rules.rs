//! Rules that are replaced while requests run: each request keeps the rules that it began with, and usage is kept.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::FutureExt;
use http::{Request, Response};
use tidegate::{Config, Metrics, RateLimitLayer, ReportHandle, Store};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::support::redis::RedisServer;
use crate::support::wire::until_within;

/// Returns the text of rules with one route and one limit with this rate. `wait` is appended to the limit.
fn text(route: &str, rate: u32, wait: &str) -> String {
    let limit = format!("{{ name: total, mode: OVERALL, rate: {rate}, interval: 1h{wait} }}");
    format!("routes: [{{ name: {route}, match: {{ path: /{route} }}, limits: [{limit}] }}]")
}

fn rules(route: &str, rate: u32, wait: &str) -> Config {
    Config::parse(&text(route, rate, wait)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn without_wait(route: &str, rate: u32) -> Config {
    rules(route, rate, "")
}

fn layer(config: &Config, store: &Store) -> RateLimitLayer {
    RateLimitLayer::builder().store(store.clone()).from_config(config).expect("a layer")
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new().fallback(get(async || "handled")).layer(layer.clone())
}

async fn ask(app: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    app.clone().oneshot(request).await.expect("a response")
}

async fn statuses(app: &Router, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(ask(app, path).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn replaced_rules_report_changes_and_ignored_keys() {
    let layer = layer(&without_wait("a", 3), &Store::memory());
    assert!(
        layer
            .replace_rules(&Config::parse(&format!("# another line\n{}", text("a", 3, ""))).expect("rules"))
            .is_empty()
    );
    let change = layer.replace_rules(&without_wait("a", 4));
    assert_eq!((change.changed, change.added, change.removed), (vec!["a".to_owned()], vec![], vec![]));
    let change = layer.replace_rules(&without_wait("b", 4));
    assert_eq!((change.added, change.removed, change.changed), (vec!["b".to_owned()], vec!["a".to_owned()], vec![]));
    let ignored = "store: redis://127.0.0.1:1\nmetrics: { buckets: [1s] }\nclients: { ipv6_prefix: 48 }\n";
    let config = Config::parse(&format!("{ignored}{}", text("b", 4, ""))).expect("rules");
    let change = layer.replace_rules(&config);
    assert_eq!((change.ignored, change.keys), (vec!["store", "metrics"], vec!["clients"]));
    assert!(layer.replace_rules(&config).is_empty());
    let conditions = |path: &str| {
        let limit = format!("{{ name: l, mode: OVERALL, rate: 1, interval: 1s, when: {{ path: {path} }} }}");
        Config::parse(&format!("routes: [{{ name: b, match: {{ path: /** }}, limits: [{limit}] }}]")).expect("rules")
    };
    layer.replace_rules(&conditions("/x"));
    assert_eq!(layer.replace_rules(&conditions("/y")).changed, ["b"]);
}

#[tokio::test]
async fn watched_file_replaces_the_rules() {
    let folder = std::env::temp_dir().join(format!("tidegate-watched-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("rules.yaml");
    let write = |text: &str| {
        let new = folder.join("new.yaml");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).expect("the file is written");
    };
    write(&text("a", 2, ""));
    let layer = RateLimitLayer::from_file(&path).expect("a layer");
    let app = app(&layer);
    let watcher = tokio::spawn(layer.watch_file(&path));
    assert_eq!(statuses(&app, "/a", 3).await, [200, 200, 429]);
    write("routes: nonsense");
    write(&text("a", 4, ""));
    // A store in memory decides immediately.
    let is_admitted = || ask(&app, "/a").now_or_never().is_some_and(|response| response.status() == 200);
    until_within(Duration::from_secs(60), is_admitted).await;
    assert_eq!(statuses(&app, "/a", 2).await, [200, 429], "usage is kept");
    assert!(!watcher.is_finished());
    watcher.abort();
    std::fs::remove_dir_all(&folder).expect("the folder is removed");
}

#[tokio::test]
async fn new_rate_applies_immediately_and_keeps_usage() {
    let redis = RedisServer::start();
    for store in [Store::memory()].into_iter().chain(redis.iter().map(RedisServer::store)) {
        let layer = layer(&without_wait("a", 3), &store);
        let app = app(&layer);
        assert_eq!(statuses(&app, "/a", 4).await, [200, 200, 200, 429]);
        layer.replace_rules(&without_wait("a", 5));
        assert_eq!(statuses(&app, "/a", 3).await, [200, 200, 429], "three of the five are in use");
        layer.replace_rules(&without_wait("a", 4));
        assert_eq!(statuses(&app, "/a", 1).await, [429], "five of the four are in use");
        layer.for_worker().replace_rules(&without_wait("b", 1));
        assert_eq!(statuses(&app, "/a", 1).await, [200], "the new rules have no route for the path");
        assert_eq!(statuses(&app, "/b", 2).await, [200, 429]);
        layer.replace_rules(&without_wait("a", 6));
        assert_eq!(statuses(&app, "/a", 2).await, [200, 429], "the bucket outlives the rules that named it");
    }
}

/// Returns a service that responds once the semaphore has a permit.
fn held(layer: &RateLimitLayer) -> (Router, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let handler = get(async move || {
        opened.acquire().await.expect("open").forget();
        "handled"
    });
    (Router::new().fallback(handler).layer(layer.clone()), gate)
}

fn start_request(app: &Router, path: &'static str) -> JoinHandle<Response<Body>> {
    let app = app.clone();
    tokio::spawn(async move { ask(&app, path).await })
}

#[tokio::test(start_paused = true)]
async fn running_request_keeps_its_rules() {
    let metrics = Arc::new(Metrics::new());
    let layer =
        RateLimitLayer::builder().metrics(Arc::clone(&metrics)).from_config(&without_wait("a", 3)).expect("a layer");
    let (app, gate) = held(&layer);
    let report = ReportHandle::default();
    let request = Request::get("/a").extension(report.clone()).body(Body::empty()).expect("a request");
    let asking = tokio::spawn(app.oneshot(request));
    tokio::time::sleep(Duration::from_millis(1)).await; // in virtual time: the request reaches its handler
    assert!(report.get().is_none());
    layer.replace_rules(&without_wait("b", 3));
    gate.add_permits(1);
    asking.await.expect("a task").expect("a response");
    assert_eq!(report.get().and_then(|report| report.route.as_deref()), Some("a"));
    let text = metrics.render();
    assert!(!text.contains(r#"route="b",status="2xx""#), "{text}");
    assert!(!text.contains(r#"route="a""#), "its series end with its last request: {text}");
}

#[tokio::test(start_paused = true)]
async fn waiting_request_keeps_its_rules() {
    let store = Store::memory();
    let layer = layer(&rules("a", 1, ", max_wait: 1h"), &store);
    let app = app(&layer);
    assert_eq!(ask(&app, "/a").await.status(), 200);
    let waiting = start_request(&app, "/a");
    tokio::time::sleep(Duration::from_millis(1)).await;
    layer.replace_rules(&without_wait("a", 1));
    assert_eq!(ask(&app, "/a").await.status(), 429, "the new rules have no `max_wait`");
    assert!(!waiting.is_finished());
    let began = tokio::time::Instant::now();
    assert_eq!(waiting.await.expect("a response").status(), 200);
    assert_eq!(began.elapsed().as_secs(), 3_599);
}
