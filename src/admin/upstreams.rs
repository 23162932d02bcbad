//! `/api/v1/upstreams`: the upstreams, and what this gateway knows of their targets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Active, Admin};
use crate::clock::wall_time;
use crate::metrics::UpstreamTotals;
use crate::upstream::settings::{Target, UpstreamSettings};
use crate::upstream::{TargetFailure, TargetUse};

/// An upstream.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UpstreamState {
    name: String,
    /// `auto`, `http1` or `http2`.
    protocol: &'static str,
    /// The open connections to all targets.
    connections: i64,
    /// The requests that wait for a connection.
    waiting: i64,
    requests: Requests,
    targets: Vec<TargetView>,
}

/// The requests to an upstream since the gateway started, by their result.
#[derive(Debug, Serialize, ToSchema)]
struct Requests {
    answered: u64,
    unreachable: u64,
    timed_out: u64,
    broken: u64,
    queue_full: u64,
    queue_timeout: u64,
    /// The requests that were sent again because an idle connection was closed.
    retried: u64,
}

/// A target of an upstream.
#[derive(Debug, Serialize, ToSchema)]
struct TargetView {
    /// As in the rule file.
    address: String,
    tls: bool,
    state: TargetState,
    /// The connections in use; with HTTP/2, the requests in flight.
    in_use: usize,
    /// The idle HTTP/1 connections.
    idle: usize,
    /// The attempts to get a response, by outcome. Outcomes that never occurred are absent.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    attempts: serde_json::Map<String, Value>,
    /// The failures since the last response; null while the target responds.
    failing: Option<Failing>,
}

/// Whether the gateway sends requests to a target.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum TargetState {
    Usable,
}

/// The failures of a target since its last response.
#[derive(Debug, Serialize, ToSchema)]
struct Failing {
    /// When the target began to fail (RFC 3339).
    since: String,
    failures: u64,
    last_error: String,
}

/// Lists the upstreams with their targets, requests and failures.
#[utoipa::path(get, path = "/upstreams", tag = "state", responses((status = 200, body = [UpstreamState]), Problem))]
pub(super) async fn upstreams(State(admin): State<Admin>) -> Json<Value> {
    let active = admin.active.load_full();
    let states: Vec<_> = active.config.upstreams.values().map(|settings| state(&admin, &active, settings)).collect();
    let mut shown = json!(states);
    active.config.secrets.mask_json(&mut shown);
    Json(shown)
}

fn state(admin: &Admin, active: &Active, settings: &UpstreamSettings) -> UpstreamState {
    let UpstreamTotals { requests, retried, connections, waiting } = admin.metrics.upstream_totals(&settings.name);
    let [answered, unreachable, timed_out, broken, queue_full, queue_timeout] = requests;
    let workers: Vec<Vec<TargetUse>> =
        active.upstreams.iter().filter_map(|worker| worker.get(&settings.name)).map(|one| one.target_use()).collect();
    let target = |(position, target): (usize, &Target)| {
        let used: Vec<&TargetUse> = workers.iter().filter_map(|worker| worker.get(position)).collect();
        let address = target.to_string();
        TargetView {
            tls: matches!(target, Target::Https(_)),
            state: TargetState::Usable,
            in_use: used.iter().map(|used| used.in_use).sum(),
            idle: used.iter().map(|used| used.idle).sum(),
            attempts: attempts(admin, &settings.name, &address),
            failing: used.first().and_then(|used| used.failure.as_ref()).map(failing),
            address,
        }
    };
    UpstreamState {
        name: settings.name.to_string(),
        protocol: settings.protocol.name(),
        connections,
        waiting,
        requests: Requests { answered, unreachable, timed_out, broken, queue_full, queue_timeout, retried },
        targets: settings.targets.iter().enumerate().map(target).collect(),
    }
}

fn attempts(admin: &Admin, upstream: &Arc<str>, target: &str) -> serde_json::Map<String, Value> {
    let counts = admin.metrics.attempts(upstream, target).into_iter();
    counts.filter(|(_, count)| *count > 0).map(|(outcome, count)| (outcome.to_owned(), count.into())).collect()
}

fn failing(failure: &TargetFailure) -> Failing {
    let millis = u64::try_from(failure.since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let since = crate::clock::Timestamp::from_millis(wall_time().as_millis().saturating_sub(millis));
    Failing { since: since.to_rfc3339(), failures: failure.failures, last_error: failure.last_error.clone() }
}
