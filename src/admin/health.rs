//! Health checks and metrics: `/healthz`, `/readyz` and `/metrics`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Active, Admin};
use tidegate_metrics::Metrics;
use tidegate_proxy::upstream::Upstreams;

/// Whether load balancers should send requests to this gateway.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    /// Whether it accepts new connections and, with `fail_readiness`, its store is reachable.
    pub(super) ready: bool,
    /// `up` or `unreachable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
    /// `draining` during a drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
}

/// Reports that the process is alive.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "health",
    responses((status = 200, description = "The process runs", body = String, content_type = "text/plain"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Reports whether load balancers should send requests to this gateway.
///
/// An unreachable store fails the check only with `fail_readiness`, because it is usually unreachable for all gateways.
// Probes may send any `Host`, so the body contains no addresses. `/api/v1/status` contains the cause of an outage.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    responses(
        (status = 200, description = "The gateway is ready", body = Readiness),
        (status = 503, description = "The gateway is not ready", body = Readiness)
    )
)]
pub(super) async fn readyz(State(admin): State<Admin>) -> (StatusCode, Json<Readiness>) {
    let active = admin.active.load_full();
    let is_up = active.probe.ask().await.is_up && active.store.outage().is_none();
    let readiness = readiness(&admin, &active, is_up);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Returns all metrics in the OpenMetrics text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    responses(
        (status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")
    )
)]
pub(super) async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let active = admin.active.load();
    active.upstreams.iter().take(1).for_each(Upstreams::update_metrics);
    ([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], admin.metrics.render())
}

pub(super) fn readiness(admin: &Admin, active: &Active, is_up: bool) -> Readiness {
    if !admin.readiness.is_ready() {
        return Readiness { ready: false, store: None, reason: Some("draining") };
    }
    let ready = is_up || !active.config.store.fails_readiness();
    Readiness { ready, store: Some(if is_up { "up" } else { "unreachable" }), reason: None }
}
