//! The turn of a charge: whether it comes before or after requests that wait for its bucket, in any gateway, and how late
//! its time slot may be.

use super::{Charge, Decision, Limiter};
use tidegate_limit::{Algorithm, Wait};

/// The turn of a charge among the requests of all gateways that wait for its bucket in Redis. In a store in this process,
/// the caller keeps the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// The bucket has no order.
    #[default]
    Any,
    /// After all requests that wait.
    Last,
    /// As the first request of a queue: after the requests that wait longer. While the charge is refused and all others of
    /// the request are granted, its queue has a ticket in Redis.
    First(Box<QueueStart>),
    /// Without an order; a time slot that begins later than this is refused.
    Within {
        /// The longest delay, in milliseconds.
        millis: u64,
    },
}

/// The first requests of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStart {
    /// The random number of the queues of the gateway.
    pub queue: u64,
    /// How long the first request has waited, in milliseconds.
    pub millis: u64,
    /// How much later each request joined the queue than the first, in milliseconds, with 0 for the first. At most 255
    /// requests. They are assumed to need as many permits as the first.
    pub ages: Vec<u32>,
}

impl Turn {
    /// Returns `true` if the bucket has an order.
    pub fn is_ordered(&self) -> bool {
        matches!(self, Self::Last | Self::First(_))
    }

    /// Returns the decision about a charge with this turn: refuses a time slot that is too late.
    #[inline]
    pub fn limit_delay(&self, decision: Decision) -> Decision {
        match *self {
            Self::Within { millis } if decision.delay > millis => {
                Decision { granted: false, wait: Wait::Millis(decision.delay - millis), delay: 0, ..decision }
            }
            _ => decision,
        }
    }

    /// Returns the turn of a new request, if requests can wait for the limiter. Buckets in shards and those shared with
    /// Redisson have no order.
    pub fn new(limiter: &Limiter, can_wait: bool) -> Self {
        let is_redisson = matches!(limiter.quota.algorithm(), Algorithm::Redisson(_));
        if can_wait && !is_redisson && limiter.shards().is_empty() { Self::Last } else { Self::Any }
    }
}

impl Charge {
    /// Returns the longest delay until a time slot that the charge accepts, in milliseconds; 0 without time slots.
    pub fn patience(&self) -> u64 {
        match self.turn {
            Turn::Within { millis } => millis,
            _ => self.limiter.quota.algorithm().queue().map_or(0, |queue| queue.max_wait),
        }
    }
}
