//! `/api/v1/routes`: the routes, with their responses and their latency in the last minute.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::problem::Problem;

/// A route.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ListedRoute {
    route: String,
    /// The upstream; null for a route that answers itself.
    upstream: Option<String>,
    last_minute: Responses,
    /// Half of the responses of the last minute had their head within this time. Null without a response.
    p50_ms: Option<f64>,
    /// 99 % of the responses of the last minute had their head within this time.
    p99_ms: Option<f64>,
}

/// The responses in the last minute.
#[derive(Debug, Serialize, ToSchema)]
struct Responses {
    /// Below 400.
    successful: u64,
    /// 400 to 498 without 429.
    client_errors: u64,
    /// 429.
    rejected: u64,
    /// 500 to 599.
    server_errors: u64,
    /// 499: the client left before the response.
    client_gone: u64,
}

/// Returns the routes in the order of the rule file, with their responses and their latency in the last minute.
#[utoipa::path(
    get,
    path = "/routes",
    tag = "state",
    responses((status = 200, description = "The routes", body = [ListedRoute]), Problem)
)]
pub(super) async fn routes(State(admin): State<Admin>) -> Json<Vec<ListedRoute>> {
    let active = admin.active.load_full();
    let show = |route: &tidegate_rules::route::Route| {
        let (responses, latency) = admin.last_minute_of_route(&route.name);
        let [successful, client_errors, rejected, server_errors, client_gone] = responses;
        ListedRoute {
            route: (*route.name).to_owned(),
            upstream: route.action.upstream().map(|upstream| (**upstream).to_owned()),
            last_minute: Responses { successful, client_errors, rejected, server_errors, client_gone },
            p50_ms: latency.map(|latency| millis(latency.p50)),
            p99_ms: latency.map(|latency| millis(latency.p99)),
        }
    };
    Json(active.config.rules.routes.iter().map(show).collect())
}

fn millis(micros: u64) -> f64 {
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1_000.0
}
