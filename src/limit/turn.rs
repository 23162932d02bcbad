//! The turn of a charge: whether it comes before or after requests that wait for its bucket, in any gateway.

use super::{Algorithm, Limiter};

/// The turn of a charge among the requests of all gateways that wait for its bucket in Redis. In a store in this process,
/// the caller keeps the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// The bucket has no order.
    #[default]
    Any,
    /// After all requests that wait.
    Last,
    /// As the first request of a queue: after the requests that wait longer. While the charge is refused and all others of
    /// the request are granted, it has a ticket in Redis.
    First {
        /// The random number of the queues of the gateway.
        queue: u64,
        /// How long the request has waited, in milliseconds.
        millis: u64,
    },
}

impl Turn {
    /// Returns the turn of a new request, if requests can wait for the limiter. Buckets in shards and those shared with
    /// Redisson have no order.
    pub(crate) fn new(limiter: &Limiter, can_wait: bool) -> Self {
        let is_shared = matches!(limiter.quota.algorithm(), Algorithm::Redisson(_));
        if can_wait && !is_shared && limiter.shards().is_empty() { Self::Last } else { Self::Any }
    }
}
