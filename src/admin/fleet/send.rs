//! `POST /api/v1/fleet/commands`: sends a command to all gateways, and waits for their reports.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

use super::command::{FleetAction, FleetCommand, LIFETIME};
use super::follow::{Outcome, Report};
use super::{FleetGateway, FleetMember};
use crate::admin::Admin;
use crate::admin::authorize::bearer_token;
use crate::admin::only_object::OnlyObject;
use crate::admin::problem::Problem;
use tidegate_store::Store;

/// The time between readings of the reports.
const READ_EVERY: Duration = Duration::from_millis(100);

/// The longest wait for the reports: commands end after [`LIFETIME`], and a reload may still be in progress then.
const MAX_WAIT: Duration = Duration::from_millis(LIFETIME + 2_000);

const NO_TOKEN: &str = "a command for all gateways needs a token, also over a Unix socket: each gateway checks it";
const NOT_SHARED: &str = "no other gateway can share the store, because it is in the memory of this gateway";

/// The results of a command.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct FleetResult {
    /// The id of the command.
    id: String,
    gateways: Vec<GatewayResult>,
}

/// The result at one gateway.
#[derive(Debug, Serialize, ToSchema)]
struct GatewayResult {
    /// The random id of the process.
    id: String,
    /// The name of the gateway; null if its version announces none.
    name: Option<String>,
    /// `done`; `refused` if the gateway did not accept the signature; `failed`; `no_answer` in time; or `unsupported` by
    /// the version of the gateway.
    outcome: &'static str,
    /// Why the command was not executed.
    detail: Option<String>,
}

/// Sends a command to all gateways that share the store, and waits for their reports for at most 12 s.
///
/// Each gateway checks the signature of the command against its token file. The status is 200 also if
/// gateways did not execute the command.
#[utoipa::path(
    post,
    path = "/fleet/commands",
    tag = "state",
    request_body = FleetAction,
    responses((status = 200, description = "The results", body = FleetResult), Problem),
    security(("token" = []))
)]
pub(in crate::admin) async fn send_command(
    State(admin): State<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<FleetResult>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let token = bearer_token(&headers).ok_or_else(|| Problem::new(StatusCode::FORBIDDEN, NO_TOKEN))?;
    let OnlyObject(action) = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request(format!("the body is not valid: {error}")))?;
    let store = &active.store;
    let (Some(list), Some(members)) = (store.commands_key(), store.fleet().await?) else {
        return Err(Problem::new(StatusCode::CONFLICT, NOT_SHARED));
    };
    let command = FleetCommand::new(&list, operator, store.read_time().await?, action);
    if !store.put_command(&command.to_signed(token)?, command.expires()).await? {
        let detail = "too many commands are in progress: try again in 10 seconds";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let gateways = wait_for_reports(store, &command.id, members).await;
    Ok(Json(FleetResult { id: command.id, gateways }))
}

/// Waits until all gateways have reported that support commands.
async fn wait_for_reports(store: &Store, command_id: &str, members: Vec<FleetMember>) -> Vec<GatewayResult> {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let reports = store.command_reports(command_id).await.unwrap_or_default();
        let is_done = |member: &FleetMember| member.text.is_none() || reports.iter().any(|(id, _)| *id == member.id);
        if members.iter().all(is_done) || Instant::now() >= deadline {
            return members.into_iter().map(|member| result(member, &reports)).collect();
        }
        sleep(READ_EVERY).await;
    }
}

/// Returns the result at a gateway.
fn result(member: FleetMember, reports: &[(String, String)]) -> GatewayResult {
    let report = reports.iter().find(|(id, _)| *id == member.id);
    let report = report.and_then(|(_, text)| serde_json::from_str::<Report>(text).ok());
    let (outcome, detail) = match report {
        Some(Report { outcome: Outcome::Done, detail }) => ("done", detail),
        Some(Report { outcome: Outcome::Refused, detail }) => ("refused", detail),
        Some(Report { outcome: Outcome::Failed, detail }) => ("failed", detail),
        None if member.text.is_none() => ("unsupported", None),
        None => ("no_answer", None),
    };
    let FleetGateway { id, name, .. } = member.into();
    GatewayResult { id: id.unwrap_or_default(), name, outcome, detail }
}
