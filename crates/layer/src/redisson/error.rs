//! Errors of the limiter's operations.

use tidegate_limit::RateConfig;
use tidegate_store::StoreError;

/// An error of a [`RateLimiter`](super::RateLimiter)'s operation. A lack of permits is not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateLimiterError {
    /// The name is empty. Returned by the constructors.
    #[error("a limiter needs a name that is not empty")]
    NoName,
    /// The number of permits is zero.
    #[error("permits must be at least 1, not 0")]
    NoPermits,
    /// The permits exceed the rate: waiting cannot help. Nothing is charged.
    #[error("{permits} permits are more than the rate of limiter `{limiter}`{}", rate_suffix(rate.as_ref()))]
    ExceedsRate {
        /// The limiter's name.
        limiter: String,
        /// The requested permits.
        permits: u32,
        /// The rate, unless the limiter has expired since.
        rate: Option<RateConfig>,
    },
    /// The limiter has no rate, or has expired. Set the rate with [`ensure_rate`](super::RateLimiter::ensure_rate).
    #[error("limiter `{limiter}` has no rate yet")]
    NotInitialised {
        /// The limiter's name.
        limiter: String,
    },
    /// The store did not reply before its deadline, or returned an error.
    #[error("limiter `{limiter}`: store `{store}`: {error}{}", cause_suffix(cause.as_ref()))]
    Store {
        /// The limiter's name.
        limiter: String,
        /// The store: `memory`, or its address without the password.
        store: String,
        /// The error of the store.
        error: StoreError,
        /// Why the store is unreachable, if it is known.
        cause: Option<String>,
    },
}

fn rate_suffix(rate: Option<&RateConfig>) -> String {
    rate.map(|rate| format!(", which is {} in {:?}", rate.rate(), rate.interval())).unwrap_or_default()
}

fn cause_suffix(cause: Option<&String>) -> String {
    cause.map(|cause| format!(": {cause}")).unwrap_or_default()
}
