//! Limits with another rate for some clients. The buckets are the same, so that permits in use are kept.

use crate::{Algorithm, Mode};
use crate::{Limiter, MAX_RATE, Quota, Spread};

impl Quota {
    /// Returns the quota with another rate, 1 to [`MAX_RATE`]. The burst, or the length of the queue, changes in proportion.
    fn at_rate(&self, rate: u32) -> Self {
        let rate = rate.clamp(1, MAX_RATE);
        let scaled = |permits: u32| {
            let scaled = u64::from(permits) * u64::from(rate) / u64::from(self.rate);
            u32::try_from(scaled).unwrap_or(MAX_RATE).min(MAX_RATE)
        };
        Self { rate, ..self.scaled(scaled, scaled) }
    }
}

impl Limiter {
    /// Returns `true` if a client can have another rate: each client has a bucket, and no other program reads or sets the
    /// rate in the store.
    pub fn is_adjustable(&self) -> bool {
        self.mode == Mode::PerClient && !matches!(self.quota.algorithm(), Algorithm::Redisson(_))
    }

    /// Returns an adjustable limiter with the same buckets and another rate.
    #[must_use]
    pub fn at_rate(&self, rate: u32) -> Self {
        let spread = match &self.spread {
            Spread::Partitions(numbers) => Spread::Partitions(numbers.clone()),
            Spread::Undivided | Spread::Shards(_) => Spread::Undivided, // only OVERALL limits have shards
        };
        let (name, quota) = (self.name.clone(), self.quota.at_rate(rate));
        Self { name, mode: self.mode, quota, spread, number: self.number }
    }
}
