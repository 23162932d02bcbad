//! `/api/v1/upstreams/{upstream}/targets/{target}/drain`: sends no new requests to a target for a time.
//!
//! A drain is of this process. It survives reloads while the target stays in its upstream.

#![expect(unused_qualifications, reason = "utoipa generates them")]

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};
use utoipa::{IntoParams, ToSchema};

use super::audit::{Change, MAX_REASON, at_gateway};
use super::gateway_name::GatewayName;
use super::only_object::OnlyObject;
use super::problem::Problem;
use super::{Active, Admin};
use tidegate_config::Millis;
use tidegate_layer::overrides::MAX_DURATION;
use tidegate_limit::clock::wall_time;
use tidegate_proxy::upstream::{TargetCondition, TargetUse};

/// How long a drain lasts by default.
const DEFAULT_DURATION: Millis = Millis(60 * 60 * 1000);

/// The target that a request is about.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct TargetPath {
    /// The name of the upstream.
    #[param(example = "api")]
    pub(super) upstream: String,
    /// The target, percent-encoded: as in the rule file, without `http://` or `https://`, or a resolved address of its
    /// host name.
    #[param(example = "10.0.0.1:9000")]
    pub(super) target: String,
}

/// The body of a request. All members are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewDrain {
    /// How long the drain lasts, such as `10m`; at most 30 days. One hour by default.
    #[serde(rename = "for")]
    pub(super) duration: Option<String>,
    /// Why, for the audit list.
    #[schema(max_length = 256)]
    pub(super) reason: Option<String>,
    /// Whether to drain even the last usable target of the upstream.
    #[serde(default)]
    pub(super) force: bool,
}

/// The state after a change.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Drained {
    upstream: String,
    /// The targets, as in the rule file, each with its resolved address.
    targets: Vec<String>,
    /// The requests that are in flight at the targets.
    in_flight: usize,
    /// When the drain ends (RFC 3339); null after its end.
    until: Option<String>,
    /// Always `process`: only this process drains the target, not other gateways.
    scope: &'static str,
}

/// Sends no new requests to a target for a time. Requests in flight continue.
///
/// Only this process drains the target. If no other target of the upstream is usable, the status is 409 without `force`.
#[utoipa::path(
    post,
    path = "/upstreams/{upstream}/targets/{target}/drain",
    tag = "state",
    params(TargetPath),
    request_body = NewDrain,
    responses((status = 200, description = "The target gets no new requests", body = Drained), Problem),
    security(("token" = []))
)]
pub(super) async fn drain(
    State(admin): State<Admin>,
    Path(path): Path<TargetPath>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Drained>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let drain = parse(&body)?;
    admin.drain_target(&active, (operator, None), path, drain).await.map(Json)
}

/// Ends the drain of a target.
#[utoipa::path(
    delete,
    path = "/upstreams/{upstream}/targets/{target}/drain",
    tag = "state",
    params(TargetPath),
    responses((status = 200, description = "The target gets requests again", body = Drained), Problem),
    security(("token" = []))
)]
pub(super) async fn undrain(
    State(admin): State<Admin>,
    Path(path): Path<TargetPath>,
    headers: HeaderMap,
) -> Result<Json<Drained>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    admin.end_drain(&active, (operator, None), path).await.map(Json)
}

impl Admin {
    /// Drains a target. `by` is the operator, and the name of this gateway if the drain is a command for all gateways.
    pub(super) async fn drain_target(
        &self,
        active: &Active,
        by: (String, Option<GatewayName>),
        path: TargetPath,
        drain: NewDrain,
    ) -> Result<Drained, Problem> {
        let NewDrain { duration, reason, force } = drain;
        let duration = parse_duration(duration.as_deref())?;
        if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
            return Err(Problem::bad_request(format!("`reason` has at most {MAX_REASON} bytes")));
        }
        let (targets, others) = active.targets(&path)?;
        let until = Instant::now() + duration;
        let names = names(&targets);
        let change = change(by, "drain", &path, &names, reason);
        let in_flight =
            self.make_change(change, move |_| async move { start(&targets, &others, until, force) }).await?;
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let until = Some(wall_time().plus_millis(millis).to_rfc3339());
        Ok(Drained { upstream: path.upstream, targets: names, in_flight, until, scope: "process" })
    }

    /// Ends the drain of a target. `by` is as for [`drain_target`](Self::drain_target).
    pub(super) async fn end_drain(
        &self,
        active: &Active,
        by: (String, Option<GatewayName>),
        path: TargetPath,
    ) -> Result<Drained, Problem> {
        let (targets, _) = active.targets(&path)?;
        let names = names(&targets);
        let change = self.make_change(change(by, "end_drain", &path, &names, None), move |_| async move {
            targets.iter().for_each(|target| target.state.drain_until(None));
            Ok(targets.iter().map(|target| target.state.in_flight()).sum())
        });
        let in_flight = change.await?;
        Ok(Drained { upstream: path.upstream, targets: names, in_flight, until: None, scope: "process" })
    }
}

/// Drains the targets until a time. Returns the number of requests in flight.
fn start(targets: &[TargetUse], others: &[TargetUse], until: Instant, force: bool) -> Result<usize, Problem> {
    if !force && !others.iter().any(|other| other.condition(Instant::now()) == TargetCondition::Usable) {
        let detail = "no other target of the upstream is usable: set `force` (`--force`) to drain this one anyway";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    for target in targets {
        target.state.drain_until(Some(until));
    }
    // Logs the end of the drain, unless an operator has changed it, or the target was removed.
    let drained: Vec<_> = targets.iter().map(|target| Arc::downgrade(&target.state)).collect();
    tokio::spawn(async move {
        sleep_until(until).await;
        drained.iter().filter_map(Weak::upgrade).for_each(|target| target.end_drain(until));
    });
    Ok(targets.iter().map(|target| target.state.in_flight()).sum())
}

fn change(
    (operator, place): (String, Option<GatewayName>),
    action: &'static str,
    path: &TargetPath,
    names: &[String],
    reason: Option<String>,
) -> Change {
    let target = format!("{}: {}", path.upstream, names.join(", "));
    Change { operator, action, target: at_gateway(target, place.as_ref()), client: None, reason }
}

/// Parses the body. Without a body, all members have their defaults.
fn parse(body: &[u8]) -> Result<NewDrain, Problem> {
    if body.is_empty() {
        return Ok(NewDrain::default());
    }
    let parsed = serde_json::from_slice(body);
    let OnlyObject(drain) = parsed.map_err(|error| Problem::bad_request(format!("the body is not valid: {error}")))?;
    Ok(drain)
}

fn parse_duration(text: Option<&str>) -> Result<Duration, Problem> {
    match text.map_or(Some(DEFAULT_DURATION), Millis::parse) {
        Some(Millis(0)) | None => Err(Problem::bad_request("`for` is not a duration such as 10m")),
        Some(Millis(millis)) if millis > MAX_DURATION => {
            Err(Problem::bad_request("a target drains for at most 30 days"))
        }
        Some(millis) => Ok(millis.duration()),
    }
}

fn names(targets: &[TargetUse]) -> Vec<String> {
    targets.iter().map(|target| target.state.name().to_string()).collect()
}

impl Active {
    /// Returns the targets with this name, and the other targets of the upstream.
    fn targets(&self, path: &TargetPath) -> Result<(Vec<TargetUse>, Vec<TargetUse>), Problem> {
        let not_found = |detail| Problem::new(StatusCode::NOT_FOUND, detail);
        let upstream = self.upstreams.first().and_then(|worker| worker.get(&path.upstream));
        let all = upstream.ok_or_else(|| not_found("no upstream has this name"))?.target_use();
        let (found, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.state.name().is(&path.target));
        if found.is_empty() {
            Err(not_found("the upstream has no target with this address"))
        } else {
            Ok((found, others))
        }
    }
}
