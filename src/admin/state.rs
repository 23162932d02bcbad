//! `/api/v1/status`: the state of this gateway.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::health::readiness;
use super::probe::Answer;
use super::problem::Problem;
use super::problems::{GatewayProblem, ProblemKind};
use super::status::ConfigState;
use super::{Active, Admin, limit_list};
use tidegate_limit::clock::{Stopwatch, Timestamp, wall_time};

/// When the gateway started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    at: Timestamp,
    stopwatch: Stopwatch,
}

/// The state of a gateway.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GatewayState {
    /// The version of the program.
    version: &'static str,
    /// When the gateway started (RFC 3339).
    started_at: String,
    uptime_seconds: u64,
    /// Whether `/readyz` responds with 200.
    ready: bool,
    /// Whether the gateway drains.
    draining: bool,
    /// The number of worker threads.
    workers: usize,
    config: ConfigState,
    store: StoreState,
    connections: Connections,
    /// The problems that an operator should repair, at most 1,000. Empty if all is well.
    problems: Vec<GatewayProblem>,
}

/// The store of the buckets, as this gateway sees it.
#[derive(Debug, Serialize, ToSchema)]
struct StoreState {
    /// `memory` or `redis`.
    kind: &'static str,
    /// The address without the password; `memory` for an embedded store.
    address: String,
    up: bool,
    /// Why the store is unreachable.
    cause: Option<String>,
    /// The time of the last `PING`, at most a second ago; null for an embedded store and without a reply.
    latency_ms: Option<f64>,
    /// The number of connections that are not used because replies take too long. Each worker has one.
    open_breakers: Option<i64>,
    /// The number of gateways that share the store.
    gateways: Option<u32>,
    /// The permits that were granted locally and are not charged to the store yet.
    owed: Option<u64>,
}

/// The open connections of clients.
#[derive(Debug, Serialize, ToSchema)]
struct Connections {
    /// All connections. Some have no known protocol yet.
    open: i64,
    http1: i64,
    http2: i64,
}

/// Returns the state of this gateway: its version, rule file, store and connections, and its problems.
#[utoipa::path(
    get,
    path = "/status",
    tag = "state",
    responses((status = 200, description = "The state of the gateway", body = GatewayState), Problem)
)]
pub(super) async fn status(State(admin): State<Admin>) -> Json<GatewayState> {
    let active = admin.active.load_full();
    let answer = active.probe.ask().await;
    let store = store_state(&admin, &active, &answer);
    let readiness = readiness(&admin, &active, store.up);
    let problems = problems(&admin, &active, &answer);
    let limits = limit_list::all(&active.config).count();
    let (open, [http1, http2]) = admin.metrics.open_connections();
    Json(GatewayState {
        version: env!("CARGO_PKG_VERSION"),
        started_at: admin.start.at.to_rfc3339(),
        uptime_seconds: admin.start.stopwatch.elapsed().as_secs(),
        ready: readiness.ready,
        draining: readiness.reason.is_some(),
        workers: active.upstreams.len(),
        config: admin.status.summary(limits),
        store,
        connections: Connections { open, http1, http2 },
        problems,
    })
}

/// Returns the problems of the gateway. The store may not have answered this request although no outage is known yet.
fn problems(admin: &Admin, active: &Active, answer: &Answer) -> Vec<GatewayProblem> {
    let mut problems = admin.find_problems().to_vec();
    if !answer.is_up && active.store.outage().is_none() {
        problems.insert(0, GatewayProblem::new(ProblemKind::Store, active.store.address(), "does not reply in time"));
    }
    problems
}

fn store_state(admin: &Admin, active: &Active, answer: &Answer) -> StoreState {
    let (store, is_redis) = (&active.store, active.store.is_redis());
    let cause = store.outage();
    let latency = answer.latency.filter(|_| is_redis && answer.is_up);
    StoreState {
        kind: if is_redis { "redis" } else { "memory" },
        address: store.address(),
        up: answer.is_up && cause.is_none(),
        cause,
        latency_ms: latency.map(|latency| latency.as_secs_f64() * 1_000.0),
        open_breakers: is_redis.then(|| admin.metrics.open_breaker_count()),
        gateways: store.gateways(),
        owed: store.owed_permits(),
    }
}

// === impl Start ===

impl Start {
    pub(super) fn now() -> Self {
        Self { at: wall_time(), stopwatch: Stopwatch::start() }
    }
}
