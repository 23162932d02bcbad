//! Why an operation of a limiter has no answer.

use crate::limit::RateConfig;
use crate::store::StoreError;

/// Why an operation of a [`RateLimiter`](super::RateLimiter) has no answer. That there are too few permits is none of
/// them: it is an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateLimiterError {
    /// A limiter needs a name.
    #[error("a limiter needs a name that is not empty")]
    NoName,
    /// Zero permits were asked for, or given.
    #[error("permits must be at least 1, not 0")]
    NoPermits,
    /// More permits than the rate: waiting cannot help.
    #[error("{permits} permits are more than the rate of limiter `{limiter}`{}", rate_suffix(rate.as_ref()))]
    ExceedsRate {
        /// The limiter's name.
        limiter: String,
        /// What was asked for.
        permits: u32,
        /// Its rate, unless that has vanished since.
        rate: Option<RateConfig>,
    },
    /// The limiter has no rate: `try_set_rate` gives it one.
    #[error("limiter `{limiter}` has no rate yet")]
    NotInitialised {
        /// The limiter's name.
        limiter: String,
    },
    /// The store did not answer, or not with what was asked.
    #[error("limiter `{limiter}`: store `{store}`: {error}{}", cause_suffix(cause.as_ref()))]
    Store {
        /// The limiter's name.
        limiter: String,
        /// The store: `memory`, or its address without the password.
        store: String,
        /// What happened.
        error: StoreError,
        /// Why the store cannot be reached, as far as that is known.
        cause: Option<String>,
    },
}

fn rate_suffix(rate: Option<&RateConfig>) -> String {
    rate.map(|rate| format!(", which is {} in {:?}", rate.rate(), rate.interval())).unwrap_or_default()
}

fn cause_suffix(cause: Option<&String>) -> String {
    cause.map(|cause| format!(": {cause}")).unwrap_or_default()
}
