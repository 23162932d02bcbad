//! What operators see: health, metrics and the rules in force, on a listener of its own.

mod config;
mod limits;
mod listener;
mod open;
mod phase;
mod probe;
mod serve;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

pub(crate) use self::listener::Listener;
use self::probe::Probe;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::store::Store;

/// The service of the operators.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    store: Store,
    readiness: Readiness,
    probe: Probe,
}

/// Whether this gateway wants new connections.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(Arc<AtomicBool>);

// === impl Readiness ===

impl Readiness {
    /// Ready.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Not ready any more.
    pub(crate) fn fail(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn is_ready(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Admin ===

impl Admin {
    /// A service that tells about these.
    pub(crate) fn new(config: Arc<Config>, metrics: Arc<Metrics>, store: Store, readiness: Readiness) -> Self {
        let probe = Probe::new(store.clone());
        Self { config, metrics, store, readiness, probe }
    }

    /// Serves until the listener is closed, then finishes the requests that were sent before.
    pub(crate) async fn serve(self, listener: Listener) {
        serve::serve(listener, self.router()).await;
    }

    fn router(self) -> Router {
        let api =
            Router::new().route("/config", get(rules)).route("/limits", get(limits)).layer(from_fn(only_by_address));
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .nest("/api/v1", api)
            .with_state(self)
    }
}

/// Is the process alive? It answers, so it is.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Returns whether load balancers should send requests here. An unreachable store is reported, and fails the check only if
/// the rule file says so: mostly it is unreachable for the other gateways as well. Probes may send any `Host`, so the body
/// has no addresses; `/api/v1/config` has the cause of an outage.
async fn readyz(State(admin): State<Admin>) -> (StatusCode, Json<Value>) {
    let is_up = admin.probe.is_up().await && admin.store.outage().is_none();
    match admin.readiness.is_ready() {
        true if is_up => (StatusCode::OK, Json(json!({ "ready": true, "store": "up" }))),
        true => {
            let ready = !admin.config.store.fails_readiness();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, Json(json!({ "ready": ready, "store": "unreachable" })))
        }
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "ready": false, "reason": "draining" }))),
    }
}

/// All counters, in the OpenMetrics text format.
async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], admin.metrics.render())
}

/// The rules in force, with defaults filled in and secrets masked.
async fn rules(State(admin): State<Admin>) -> Json<Value> {
    Json(config::show(&admin.config, &admin.store))
}

/// The limits in force, each with how many buckets it has, where these are in this process.
async fn limits(State(admin): State<Admin>) -> Json<Value> {
    Json(limits::show(&admin.config, &admin.store))
}

/// A page elsewhere can point a name of its own at this address and have a browser ask for it (DNS rebinding); but then
/// the browser sends that name.
async fn only_by_address(headers: HeaderMap, request: Request, next: Next) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if name == "localhost" || bare.parse::<IpAddr>().is_ok() {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "the api is asked for by address, or as localhost\n").into_response()
}
