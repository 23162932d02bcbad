//! The deadlines of a request to an upstream.

use std::time::Duration;

use serde::Serialize;

use crate::json;

/// The deadlines of a request to a target: `timeouts:` of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    /// The longest time to open a connection.
    #[serde(rename = "connect_ms", serialize_with = "json::millis")]
    pub connect: Duration,
    /// The longest time from the start of an attempt, the request for its body (100), or the last progress of its body,
    /// until the response begins.
    #[serde(rename = "response_ms", serialize_with = "json::millis")]
    pub response: Duration,
    /// The longest time in which the upstream neither sends nor takes data after the response has begun, while the
    /// client waits for data.
    #[serde(rename = "idle_ms", serialize_with = "json::millis")]
    pub idle: Duration,
    /// The longest time from the receipt of the request until the end of the response.
    #[serde(rename = "total_ms", serialize_with = "json::optional_millis")]
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    /// Returns the defaults of the rule file.
    fn default() -> Self {
        let (connect, response, idle) = (Duration::from_secs(1), Duration::from_secs(30), Duration::from_secs(60));
        Self { connect, response, idle, total: None }
    }
}
