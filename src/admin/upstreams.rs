//! `/api/v1/upstreams`: the upstreams, and what this gateway knows of their targets.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Active, Admin};
use tidegate_limit::clock::{Timestamp, wall_time};
use tidegate_metrics::UpstreamTotals;
use tidegate_proxy::upstream::{CheckReport, LastCheck, TargetCondition, TargetFailure, TargetName, TargetUse};
use tidegate_rules::settings::upstream::UpstreamSettings;

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
    /// Whether requests use all targets, because too many of them fail their checks.
    panic: bool,
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

/// A target of an upstream, or one address of a target with a host name.
#[derive(Debug, Serialize, ToSchema)]
struct TargetView {
    /// As in the rule file.
    address: String,
    /// The address that the host name was resolved to; null without a host name, and before it is resolved.
    resolved: Option<String>,
    tls: bool,
    state: TargetState,
    /// When the drain ends (RFC 3339).
    draining_until: Option<String>,
    /// When the ejection ends (RFC 3339). Then a single request decides about the return.
    ejected_until: Option<String>,
    /// The failure that caused the ejection.
    ejected_because: Option<String>,
    /// The weight in the rule file.
    weight: u32,
    /// The requests in flight, until the end of their responses.
    in_flight: usize,
    /// The connections in use; with HTTP/2, the requests in flight.
    in_use: usize,
    /// The idle HTTP/1 connections.
    idle: usize,
    /// The attempts to get a response, by outcome, from all addresses. Outcomes that never occurred are absent.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    attempts: serde_json::Map<String, Value>,
    /// The health checks; null if the target is not checked.
    checks: Option<Checks>,
    /// The failures since the last response; null while the target responds.
    failing: Option<Failing>,
}

/// Whether the gateway sends requests to a target.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum TargetState {
    /// It does.
    Usable,
    /// The target fails its health checks.
    Failed,
    /// The target failed too often.
    Ejected,
    /// An operator drains the target.
    Draining,
    /// The host name of the target has no known address.
    NoAddress,
}

/// The health checks of a target.
#[derive(Debug, Serialize, ToSchema)]
struct Checks {
    /// The number of checks.
    run: u64,
    /// The number of checks that failed.
    failed: u64,
    /// The number of checks that failed while the gateway itself was too busy. They have no effect.
    discarded: u64,
    /// When the last check ended (RFC 3339).
    last_at: String,
    /// Whether the target passed the last check.
    last_passed: bool,
    /// The status or the error of the last check.
    last_result: String,
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
#[utoipa::path(
    get,
    path = "/upstreams",
    tag = "state",
    responses((status = 200, description = "The upstreams with their targets", body = [UpstreamState]), Problem)
)]
pub(super) async fn upstreams(State(admin): State<Admin>) -> Json<Value> {
    let active = admin.active.load_full();
    let states: Vec<_> = active.config.upstreams.values().map(|settings| state(&admin, &active, settings)).collect();
    let mut value = json!(states);
    active.config.secrets.mask_json(&mut value);
    Json(value)
}

fn state(admin: &Admin, active: &Active, settings: &UpstreamSettings) -> UpstreamState {
    let UpstreamTotals { requests, retried, connections, waiting } = admin.metrics.upstream_totals(&settings.name);
    let [answered, unreachable, timed_out, broken, queue_full, queue_timeout] = requests;
    let workers: Vec<Vec<TargetUse>> =
        active.upstreams.iter().filter_map(|worker| worker.get(&settings.name)).map(|one| one.target_use()).collect();
    let now = Instant::now();
    let first = active.upstreams.first().and_then(|worker| worker.get(&settings.name));
    let target = |target_use: &TargetUse| {
        let is_same = |used: &&TargetUse| Arc::ptr_eq(&used.state, &target_use.state);
        let used = || workers.iter().filter_map(|worker| worker.iter().find(is_same));
        let TargetName { target, address, .. } = target_use.state.name();
        let (mut draining_until, mut ejected_until, mut ejected_because) = (None, None, None);
        let state = match target_use.condition(now) {
            TargetCondition::Usable => TargetState::Usable,
            TargetCondition::Failed => TargetState::Failed,
            TargetCondition::NoAddress => TargetState::NoAddress,
            TargetCondition::Ejected { until, why } => {
                (ejected_until, ejected_because) = (Some(after(until - now)), Some(why));
                TargetState::Ejected
            }
            TargetCondition::Draining { until } => {
                draining_until = Some(after(until - now));
                TargetState::Draining
            }
        };
        TargetView {
            tls: target.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("https")),
            state,
            draining_until,
            ejected_until,
            ejected_because,
            weight: target_use.weight,
            in_flight: target_use.state.in_flight(),
            in_use: used().map(|used| used.in_use).sum(),
            idle: used().map(|used| used.idle).sum(),
            attempts: attempts(admin, &settings.name, target),
            checks: checks(target_use.state.checks().report()),
            failing: target_use.state.failure().as_ref().map(failing),
            address: target.clone(),
            resolved: address.map(|address| address.to_string()),
        }
    };
    UpstreamState {
        name: settings.name.to_string(),
        protocol: settings.protocol.name(),
        connections,
        waiting,
        panic: first.is_some_and(|upstream| upstream.is_panic(now)),
        requests: Requests { answered, unreachable, timed_out, broken, queue_full, queue_timeout, retried },
        targets: workers.first().into_iter().flatten().map(target).collect(),
    }
}

fn attempts(admin: &Admin, upstream: &Arc<str>, target: &str) -> serde_json::Map<String, Value> {
    let counts = admin.metrics.attempts(upstream, target).into_iter();
    counts.filter(|(_, count)| *count > 0).map(|(outcome, count)| (outcome.to_owned(), count.into())).collect()
}

fn checks(report: CheckReport) -> Option<Checks> {
    let CheckReport { run, failed, discarded, last } = report;
    let LastCheck { at, has_passed: last_passed, text: last_result } = last?;
    Some(Checks { run, failed, discarded, last_at: before(at.elapsed()), last_passed, last_result })
}

fn failing(failure: &TargetFailure) -> Failing {
    let since = before(failure.since.elapsed());
    Failing { since, failures: failure.failures, last_error: failure.last_error.clone() }
}

/// Returns the time of day after this duration.
fn after(duration: Duration) -> String {
    wall_time().plus_millis(millis(duration)).to_rfc3339()
}

/// Returns the time of day before this duration.
fn before(duration: Duration) -> String {
    Timestamp::from_millis(wall_time().as_millis().saturating_sub(millis(duration))).to_rfc3339()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
