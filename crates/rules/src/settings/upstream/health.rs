//! The settings of active health checks.

use std::time::Duration;

use http::uri::PathAndQuery;
use serde::Serialize;

use crate::json;
use crate::limits::status_range::StatusRange;

/// Active health checks of the targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthSettings {
    /// The request of a check, and the responses that pass.
    #[serde(flatten)]
    pub request: HealthRequest,
    /// The time between two checks of a target.
    #[serde(rename = "interval_ms", serialize_with = "json::millis")]
    pub interval: Duration,
    /// The longest time for a check.
    #[serde(rename = "timeout_ms", serialize_with = "json::millis")]
    pub timeout: Duration,
    /// How many checks in a row a failed target must pass.
    pub rise: u32,
    /// How many checks in a row a target must fail.
    pub fall: u32,
    /// If more than this share of the targets fails its checks, in percent, requests use all of them. 0 turns that off.
    #[serde(rename = "panic")]
    pub panic_percent: u8,
}

/// The request of a health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum HealthRequest {
    /// A GET of this path. A status in one of the ranges passes.
    Http {
        /// The path, with its query.
        #[serde(serialize_with = "json::text")]
        path: PathAndQuery,
        /// The statuses that pass.
        #[serde(serialize_with = "json::texts")]
        expect: Vec<StatusRange>,
    },
    /// `grpc.health.v1.Health/Check`. `SERVING` passes.
    Grpc {
        /// The service; empty for the whole server.
        grpc: String,
    },
}

impl HealthSettings {
    /// The time between two checks of a target if the rule file sets no `interval`.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
    /// The longest time for a check if the rule file sets no `timeout`.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
    /// How many checks in a row a failed target must pass if the rule file sets no `rise`.
    pub const DEFAULT_RISE: u32 = 2;
    /// How many checks in a row a target must fail if the rule file sets no `fall`.
    pub const DEFAULT_FALL: u32 = 3;
    /// The share of failing targets, in percent, if the rule file sets no `panic`.
    pub const DEFAULT_PANIC_PERCENT: u8 = 50;
}
