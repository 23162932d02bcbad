//! Why an operation of a limiter has no answer.

use crate::store::StoreError;

/// Why an operation of a [`RateLimiter`](super::RateLimiter) has no answer. That there are too few permits is none of
/// them: it is an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateLimiterError {
    /// A limiter needs a name.
    #[error("a limiter needs a name that is not empty")]
    NoName,
    /// Zero permits were asked for, or given.
    #[error("permits must be at least 1, not 0")]
    NoPermits,
    /// More permits than the rate: waiting cannot help.
    #[error("{0} permits are more than the rate")]
    ExceedsRate(u32),
    /// The limiter has no rate: `try_set_rate` gives it one.
    #[error("limiter has no rate yet")]
    NotInitialised,
    /// The store did not answer, or not with what was asked.
    #[error("store: {0}")]
    Store(StoreError),
}

impl From<StoreError> for RateLimiterError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotInitialised => Self::NotInitialised,
            error => Self::Store(error),
        }
    }
}
