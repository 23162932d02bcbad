//! The admin listener: health checks, metrics, and the API that shows and changes the state of limits.

mod audit;
mod authorize;
mod clients;
mod config;
mod limits;
mod listener;
mod open;
mod phase;
mod probe;
mod problem;
mod query;
mod reload;
mod serve;
mod status;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use blake3::Hash;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use self::audit::Audit;
use self::authorize::Authorizer;
pub(crate) use self::listener::Listener;
use self::probe::Probe;
use self::problem::Problem;
pub(crate) use self::reload::ReloadHook;
use self::reload::ReloadSlot;
pub(crate) use self::status::ConfigProblem;
use self::status::ConfigStatus;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::store::Store;

/// Serves the admin endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    active: Arc<ArcSwap<Active>>,
    status: Arc<ConfigStatus>,
    reload: Arc<ReloadSlot>,
    audit: Audit,
    metrics: Arc<Metrics>,
    readiness: Readiness,
}

/// The configuration and the store in use. A reload replaces both.
#[derive(Debug)]
struct Active {
    config: Arc<Config>,
    store: Store,
    probe: Probe,
    authorizer: Authorizer,
}

/// Whether this gateway accepts new connections, as reported by `/readyz`.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(Arc<AtomicBool>);

// === impl Readiness ===

impl Readiness {
    /// Creates a gateway that is ready.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Marks the gateway as draining.
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

// === impl Active ===

impl Active {
    fn new(config: Arc<Config>, store: Store) -> Self {
        Self { probe: Probe::new(store.clone()), authorizer: Authorizer::new(&config), config, store }
    }
}

// === impl Admin ===

impl Admin {
    /// Creates the service.
    pub(crate) fn new(config: Arc<Config>, metrics: Arc<Metrics>, store: Store, readiness: Readiness) -> Self {
        let active = Arc::new(ArcSwap::from_pointee(Active::new(config, store)));
        let (status, reload, audit) = (Arc::new(ConfigStatus::new()), Arc::default(), Audit::default());
        Self { active, status, reload, audit, metrics, readiness }
    }

    /// Enables reloads on request.
    pub(crate) fn enable_reload(&self, hook: ReloadHook) {
        self.reload.set(hook);
    }

    /// Records the hash of the rule file that is in use. `is_new` if its rules differ from the previous rules.
    pub(crate) fn record_config(&self, hash: &Hash, is_new: bool) {
        self.status.record_success(hash, is_new);
    }

    /// Records why a rule file is not used. The previous rules stay in use.
    pub(crate) fn record_config_errors(&self, errors: Vec<ConfigProblem>) {
        self.status.record_failure(errors);
    }

    /// Replaces the configuration and the store that operators see.
    pub(crate) fn replace(&self, config: Arc<Config>, store: Store) {
        self.active.store(Arc::new(Active::new(config, store)));
    }

    /// Serves until the listener is closed, then finishes the requests that were sent before.
    pub(crate) async fn serve(self, listener: Listener) {
        serve::serve(listener, self.router()).await;
    }

    fn router(self) -> Router {
        let api = Router::new()
            .route("/config", get(active_config))
            .route("/limits", get(limits))
            .route("/limits/{route}/{limit}", delete(clients::reset_limit))
            .route("/limits/{route}/{limit}/client", get(clients::inspect).delete(clients::reset_client))
            .route("/audit", get(audit))
            .route("/reload", post(reload::reload))
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(unknown_path)
            .layer(from_fn(only_by_address));
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .nest("/api/v1", api)
            .with_state(self)
    }
}

/// Reports that the process is alive.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Reports whether load balancers should send requests to this gateway. An unreachable store fails the check only with
/// `fail_readiness`, because it is usually unreachable for all gateways. Probes may send any `Host`, so the body
/// contains no addresses. `/api/v1/config` contains the cause of an outage.
async fn readyz(State(admin): State<Admin>) -> (StatusCode, Json<Value>) {
    let active = admin.active.load_full();
    let is_up = active.probe.is_up().await && active.store.outage().is_none();
    match admin.readiness.is_ready() {
        true if is_up => (StatusCode::OK, Json(json!({ "ready": true, "store": "up" }))),
        true => {
            let ready = !active.config.store.fails_readiness();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, Json(json!({ "ready": ready, "store": "unreachable" })))
        }
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "ready": false, "reason": "draining" }))),
    }
}

/// Returns all metrics in the OpenMetrics text format.
async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], admin.metrics.render())
}

/// Returns the active configuration, with defaults and without secrets, and the status of the rule file.
async fn active_config(State(admin): State<Admin>) -> Json<Value> {
    let active = admin.active.load();
    let mut shown = config::show(&active.config, &active.store);
    admin.status.add_to(&mut shown);
    Json(shown)
}

/// Returns the active limits, with the number of buckets if these are in memory.
async fn limits(State(admin): State<Admin>) -> Json<Value> {
    let active = admin.active.load();
    Json(limits::show(&active.config, &active.store))
}

/// Returns the last changes of operators, the newest first.
async fn audit(State(admin): State<Admin>) -> Json<Value> {
    Json(json!(admin.audit.entries()))
}

async fn unknown_path() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "the API has no such path")
}

async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the path does not support this method")
}

/// Rejects requests by host name, which prevents DNS rebinding: a web page can let its own domain name resolve to this
/// address, but the browser then sends that name as `Host`.
async fn only_by_address(headers: HeaderMap, request: Request, next: Next) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if name == "localhost" || bare.parse::<IpAddr>().is_ok() {
        return next.run(request).await;
    }
    Problem::new(StatusCode::FORBIDDEN, "`Host` must be an IP address or localhost").into_response()
}
