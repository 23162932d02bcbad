//! The gateways that share the store: `GET /api/v1/fleet`, and commands for all of them.
//!
//! | module | purpose |
//! |---|---|
//! | `announce` | announces this gateway to the others |
//! | `differences` | marks gateways with another version or rule file |
//! | `command`, `send` | a signed command, and how an operator sends it |
//! | `inbox`, `follow` | which commands are new, and how this gateway executes them |

mod announce;
mod command;
mod differences;
mod follow;
mod inbox;
mod send;

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use utoipa::ToSchema;

use self::announce::GatewayText;
use self::differences::mark_differences;
use self::inbox::Inbox;
pub(super) use self::send::{__path_send_command, send_command};
use super::Admin;
use super::gateway_name::GatewayName;
use super::problem::Problem;
use tidegate_store::FleetMember;

/// The name of this gateway, and the commands that it knows.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    name: OnceLock<GatewayName>,
    inbox: Mutex<Inbox>,
    /// Notified when the announcement has changed.
    changed: Notify,
}

/// The gateways that share the store.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FleetState {
    /// Whether other gateways can share the store; false for an embedded store.
    shared: bool,
    /// The properties that differ between gateways: `version`, `hash`, both or nothing.
    differences: Vec<&'static str>,
    gateways: Vec<FleetGateway>,
}

/// A gateway of the fleet. Members are null if its version announces nothing about itself.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct FleetGateway {
    /// A random id of the process; null for an embedded store.
    id: Option<String>,
    /// Whether this gateway answers the request.
    #[serde(rename = "self")]
    is_self: bool,
    /// The name of `--name`, or the host name.
    name: Option<String>,
    /// The version of the program.
    version: Option<String>,
    /// The BLAKE3 hash of the rule file; null if the rules did not come from a file.
    hash: Option<String>,
    /// When the rules were applied (RFC 3339).
    applied_at: Option<String>,
    /// Whether `/readyz` responds with 200.
    ready: Option<bool>,
    /// Whether the gateway drains.
    draining: Option<bool>,
    /// The number of problems in its `/api/v1/status`.
    problems: Option<usize>,
    /// Milliseconds since its last announcement. Gateways announce themselves every 2.5 s, and are listed for 15 s.
    seen_ms: u64,
    /// The properties in which the gateway differs from more than half of all: `version`, `hash`, both or nothing.
    differs: Vec<&'static str>,
}

/// Returns the gateways that share the store, with their versions, rule files and health.
#[utoipa::path(
    get,
    path = "/fleet",
    tag = "state",
    responses((status = 200, description = "The gateways", body = FleetState), Problem)
)]
pub(super) async fn fleet(State(admin): State<Admin>) -> Result<Json<FleetState>, Problem> {
    let store = admin.active.load_full().store.clone();
    let members = store.fleet().await?;
    let (shared, own) = (members.is_some(), admin.own_gateway(store.gateway_id()));
    let others = members.unwrap_or_default().into_iter().filter(|member| own.id.as_ref() != Some(&member.id));
    let mut gateways: Vec<FleetGateway> = others.map(FleetGateway::from).collect();
    gateways.push(own);
    gateways.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    let differences = mark_differences(&mut gateways);
    Ok(Json(FleetState { shared, differences, gateways }))
}

impl Fleet {
    /// Announces this gateway without waiting for the next interval.
    pub(super) fn announce_soon(&self) {
        self.changed.notify_one();
    }
}

impl Admin {
    /// Returns the entry of this gateway.
    fn own_gateway(&self, id: Option<String>) -> FleetGateway {
        FleetGateway { id, is_self: true, ..self.describe_self().into() }
    }

    /// Sets the name that this gateway announces. Has no effect after the first call.
    pub(crate) fn set_name(&self, name: GatewayName) {
        _ = self.fleet.name.set(name);
        self.fleet.announce_soon();
    }

    /// Returns the name that this gateway announces.
    fn gateway_name(&self) -> GatewayName {
        self.fleet.name.get().cloned().unwrap_or_else(GatewayName::of_host)
    }
}

impl From<FleetMember> for FleetGateway {
    fn from(FleetMember { id, age, text }: FleetMember) -> Self {
        let described = text.and_then(|text| serde_json::from_str::<GatewayText>(&text).ok());
        let known = described.map(Self::from).unwrap_or_default();
        Self { id: Some(id), seen_ms: age, ..known }
    }
}

impl From<GatewayText> for FleetGateway {
    fn from(GatewayText { name, version, hash, applied_at, ready, draining, problems }: GatewayText) -> Self {
        let (name, version, applied_at) = (Some(name.into()), Some(version), Some(applied_at));
        let (ready, draining, problems) = (Some(ready), Some(draining), Some(problems));
        Self { name, version, hash, applied_at, ready, draining, problems, ..Self::default() }
    }
}
