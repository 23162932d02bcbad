//! The bound on the requests of a route in flight: `concurrency` in the rule file.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::client::ClientSource;
use crate::json;

/// How many requests of a route may be in flight, and how many may wait for others to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Concurrency {
    /// The name of the route's slots in Redis, for example `{tidegate:rest}:@in_flight`.
    #[serde(skip)]
    pub name: Arc<str>,
    /// The most requests of the route in flight. `None` if there is no bound.
    pub max: Option<u32>,
    /// The most requests of one client in flight. `None` if there is no bound.
    pub per_client: Option<u32>,
    /// How a client is identified. Used only for `per_client`.
    #[serde(serialize_with = "json::text")]
    pub client: ClientSource,
    /// The most requests in this gateway that wait for a slot.
    pub queue: usize,
    /// The longest time that a request waits.
    #[serde(rename = "max_wait_ms", serialize_with = "json::millis")]
    pub max_wait: Duration,
}

impl Concurrency {
    /// The name of the bound in responses and logs. No limit of its route has this name.
    pub const POLICY: &str = "concurrency";
    /// The longest wait for a slot if the rule file sets no `max_wait`.
    pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(1);
}
