//! A change that an operator makes to the limit of a descriptor.

use std::sync::Arc;

use tidegate_rules::charge::Limiter;

/// A change of the limit of a descriptor.
#[derive(Clone, Debug)]
pub enum LimitChange {
    /// The client is banned, for this many milliseconds: the call is rejected, also in shadow mode.
    Ban {
        /// The time until the end of the ban.
        millis: u64,
    },
    /// The limit does not count the descriptor.
    Exempt,
    /// The limit has the rate of this limiter.
    Rate(Arc<Limiter>),
}
