//! Takes permits of limits that a program names: from limits of routes and of domains together, all of them or none.
//!
//! A request with an id is decided once: a repeated request gets the same decision.
//!
//! The store, the waiting queues, the metrics and the failure policies are the same as for requests.

mod buckets;
mod decide;
mod effect;
mod error;

use std::time::Duration;

pub use self::error::TakeError;
use tidegate_limit::Wait;
use tidegate_store::OnceId;
pub use tidegate_store::ReturnedOnce;

/// Permits of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitRequest {
    /// The limit: `ROUTE/LIMIT`, `@/LIMIT` for a shared limit, or `DOMAIN/LIMIT` or `/DOMAIN/LIMIT` for a limit of a domain.
    /// A limit of a route has precedence over a limit of a domain without the first slash.
    pub limit: String,
    /// The client: a value for each source of the limit's client. Empty for an OVERALL limit.
    pub client: Vec<String>,
    /// The number of permits, at least 1.
    pub permits: u32,
}

/// A request for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The permits of each limit.
    pub requests: Vec<PermitRequest>,
    /// How long the request may wait for its permits.
    pub max_wait: Duration,
    /// The id. A granted request is remembered for ten minutes.
    pub id: Option<String>,
}

/// A decided request for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether the permits of all limits were taken. Otherwise no permits were taken.
    pub is_granted: bool,
    /// The longest wait of the limits that refused. [`Wait::Now`] if the permits were taken.
    pub wait: Wait,
    /// The decision of each limit, in the order of the request.
    pub limits: Vec<TakenLimit>,
    /// Whether the store remembers the id: then the same request gets the same decision. `None` without an id.
    pub is_remembered: Option<bool>,
    /// Whether this is the decision of an earlier request with the id.
    pub is_repeated: bool,
}

/// The decision of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenLimit {
    /// Whether the limit has the permits. A shadow always grants.
    pub is_granted: bool,
    /// The permits that remain. `None` if they are not known.
    pub remaining: Option<u32>,
    /// When the limit would grant the permits.
    pub wait: Wait,
    /// The milliseconds until the next permit in use becomes available again. `None` if it is not known.
    pub reset: Option<u64>,
}

impl Take {
    /// Returns the id for the store.
    fn once_id(&self) -> Option<OnceId> {
        let id = self.id.as_ref()?.as_bytes().into();
        Some(OnceId { id, request: self.encode().into() })
    }

    /// Returns an unambiguous encoding of the limits, the clients and the permits.
    fn encode(&self) -> Vec<u8> {
        let mut encoded = Vec::new();
        for PermitRequest { limit, client, permits } in &self.requests {
            encoded.extend(permits.to_be_bytes());
            encoded.extend(length(client.len()));
            for text in [limit].into_iter().chain(client) {
                encoded.extend(length(text.len()));
                encoded.extend(text.as_bytes());
            }
        }
        encoded
    }
}

fn length(length: usize) -> [u8; 8] {
    u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes()
}
