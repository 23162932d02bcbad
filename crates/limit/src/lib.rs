//! The algorithms of limits. There is one file for each algorithm, which is a pure function of state, quota, permits and
//! time. `lua/` contains translations for Redis; property tests check that both decide equally.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

pub mod algorithm;
pub mod boxed;
pub mod calendar;
pub mod clock;
pub mod random;
mod rate_config;
pub mod redisson;
#[cfg(test)]
mod testing;
pub mod text;

use std::fmt;

pub use self::algorithm::state::BucketState;
pub use self::algorithm::{Algorithm, AlgorithmName, examples};
pub use self::rate_config::{RateConfig, RateConfigError};
use self::redisson::Sharing;
use crate::text::words::words;

/// The largest rate: 2^31 permits, so that sums of permits stay exact in every store.
pub const MAX_RATE: u32 = 1 << 31;

/// The longest interval: 366 days, in milliseconds.
pub const MAX_INTERVAL: u64 = 366 * 24 * 60 * 60 * 1000;

/// The longest wait that is returned: a thousand years.
const MAX_WAIT: u64 = 1000 * MAX_INTERVAL;

/// The largest debt of a bucket. Further permits are not charged. It bounds times to live and keeps all sums exact, and
/// no number of requests in flight reaches it.
const MAX_DEBT: u64 = 1 << 32;

words! {
    /// Whether all clients of a limit share one bucket (Redisson's `RateType`).
    pub enum Mode {
        /// One bucket for all clients.
        Overall = "OVERALL",
        /// One bucket for each client.
        PerClient = "PER_CLIENT",
    }
}

/// A rate and its algorithm: `rate` permits in each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    rate: u32,
    interval: u64,
    algorithm: Algorithm,
}

/// The decision of an algorithm about a request for permits of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketDecision {
    /// Whether the bucket grants the permits.
    pub granted: bool,
    /// The remaining permits, after the charge if it was made.
    pub remaining: u32,
    /// When to retry; [`Wait::Now`] if granted.
    pub wait: Wait,
    /// Milliseconds until the next permit in use returns; 0 if no permit is in use.
    pub reset: u64,
    /// Milliseconds until the assigned time slot, when the request is forwarded. 0 for algorithms without time slots.
    pub delay: u64,
}

/// How long a refused request must wait, without other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// No wait: it was granted.
    Now,
    /// The request is granted in this many milliseconds, and not earlier.
    Millis(u64),
    /// Waiting cannot help: the request needs more permits than the capacity.
    Never,
}

/// The error of an invalid [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// A zero rate grants no permit, and sums of larger rates are not exact.
    #[error("rate must be between 1 and {MAX_RATE}, not {0}")]
    Rate(u64),
    /// The interval is zero, or too long to be stored.
    #[error("interval must be between 1 ms and 366 days, not {0} ms")]
    Interval(u64),
    /// A zero burst grants no permit, and sums of larger bursts are not exact.
    #[error("burst must be between 1 and {MAX_RATE}, not {0}")]
    Burst(u32),
    /// The warm-up is too short or too long to be computed exactly.
    #[error("warm_up must be between 1 s and 1 h, not {0} ms")]
    WarmUp(u64),
    /// There are no segments, or too many for one decision.
    #[error("segments must be between 1 and {max}, not {0}", max = algorithm::sliding_window::MAX_SEGMENTS)]
    Segments(u32),
}

// === impl BucketDecision ===

impl BucketDecision {
    /// Creates the decision of a single bucket. It is granted if there is no wait.
    #[inline]
    pub const fn new(remaining: u32, wait: Wait, reset: u64) -> Self {
        let granted = matches!(wait, Wait::Now);
        Self { granted, remaining, wait, reset, delay: 0 }
    }
}

// === impl Mode ===

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Quota ===

impl Quota {
    /// Creates a quota of `rate` permits, 1 to [`MAX_RATE`], in each `interval`, 1 to [`MAX_INTERVAL`] milliseconds.
    /// The calendar defines the interval of a fixed window.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn new(rate: u64, interval: u64, algorithm: Algorithm) -> Result<Self, QuotaError> {
        let exact = u32::try_from(rate).ok().filter(|rate| (1..=MAX_RATE).contains(rate));
        let rate = exact.ok_or(QuotaError::Rate(rate))?;
        let interval = algorithm.calendar().map_or(interval, |calendar| calendar.unit().millis());
        if !(1..=MAX_INTERVAL).contains(&interval) {
            return Err(QuotaError::Interval(interval));
        }
        algorithm.validate()?;
        Ok(Self { rate, interval, algorithm })
    }

    /// Creates the quota of an adopted limiter, whose rate and interval only the store knows.
    pub const fn adopted(sharing: Sharing) -> Self {
        Self { rate: MAX_RATE, interval: MAX_INTERVAL, algorithm: Algorithm::Redisson(sharing) }
    }

    /// Returns `true` if only the store knows the rate and the interval.
    pub const fn is_adopted(&self) -> bool {
        matches!(self.algorithm, Algorithm::Redisson(sharing) if sharing.follows_hash())
    }

    /// Returns one of `parts` equal shares of this quota, with at least one permit in an interval.
    #[must_use]
    pub fn share(&self, parts: u32) -> Self {
        let part = |permits: u32| permits / parts.max(1);
        self.scaled(part, part)
    }

    /// Returns the quota with another rate, 1 to [`MAX_RATE`]. The burst, or the length of the queue, changes in proportion.
    #[must_use]
    pub fn at_rate(&self, rate: u32) -> Self {
        let rate = rate.clamp(1, MAX_RATE);
        let scaled = |permits: u32| {
            let scaled = u64::from(permits) * u64::from(rate) / u64::from(self.rate);
            u32::try_from(scaled).unwrap_or(MAX_RATE).min(MAX_RATE)
        };
        Self { rate, ..self.scaled(scaled, scaled) }
    }

    /// Returns the permits in each interval.
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// Returns the interval in milliseconds; for a fixed window, the length of its unit without clock changes.
    pub const fn interval(&self) -> u64 {
        self.interval
    }

    /// Returns the algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the milliseconds in which the permits of a whole bucket return.
    pub fn fills_in(&self) -> u64 {
        self.interval.saturating_mul(u64::from(self.capacity().div_ceil(self.rate)))
    }
}
