//! The limiters: the limits as the stores see them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{OnLost, Spread};
use tidegate_limit::{Algorithm, Mode, Quota};

/// A named limit as the stores see it. A bucket is identified by this name and a client.
pub struct Limiter {
    /// The name in Redis, for example `{tidegate:rest}:per-ip`.
    pub name: String,
    /// One bucket, or one for each client.
    pub mode: Mode,
    /// The quota of each bucket; for a limiter in shards, the quota of all shards together.
    pub quota: Quota,
    /// How the buckets are distributed over hash tags.
    pub spread: Spread,
    /// The costs of requests are known only after their responses: permits are reserved, and settled later.
    pub budget: Option<OnLost>,
    /// The number of the limiter in this process. Limiters that differ only in their rate have the same number.
    pub(super) number: u64,
}

/// Shows the settings, not the number.
impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mode, quota, spread, budget, .. } = self;
        let mut limiter = f.debug_struct("Limiter");
        limiter.field("name", name).field("mode", mode).field("quota", quota).field("spread", spread);
        budget.iter().for_each(|budget| _ = limiter.field("budget", budget));
        limiter.finish()
    }
}

/// Compares the settings, not the numbers.
impl PartialEq for Limiter {
    fn eq(&self, other: &Self) -> bool {
        let settings = |limiter: &'_ Self| (limiter.mode, limiter.quota, limiter.budget);
        settings(self) == settings(other) && self.name == other.name && self.spread == other.spread
    }
}

impl Eq for Limiter {}

impl Limiter {
    /// Creates a limiter without shards and partitions.
    pub fn new(name: String, mode: Mode, quota: Quota) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { name, mode, quota, spread: Spread::Undivided, budget: None, number }
    }

    /// Makes the limiter a budget, or none.
    #[must_use]
    pub fn with_budget(self, on_lost: impl Into<Option<OnLost>>) -> Self {
        Self { budget: on_lost.into(), ..self }
    }

    /// Identifies the limiter and its rate in this process.
    pub fn rate_id(&self) -> (u64, u32, u32) {
        (self.number, self.quota.rate(), self.quota.capacity())
    }

    /// Returns the same limiter without shards and partitions.
    pub fn clone_whole(&self) -> Self {
        Self { budget: self.budget, ..Self::new(self.name.clone(), self.mode, self.quota) }
    }

    /// Returns the remaining permits of an unused OVERALL limit, or of its shard. Returns `None` for PER_CLIENT limits,
    /// and if another program sets the rate.
    pub fn unused_permits(&self, shard: Option<u16>) -> Option<u32> {
        if self.mode != Mode::Overall || self.quota.is_adopted() {
            return None;
        }
        let shard = shard.and_then(|shard| self.shards().get(usize::from(shard)));
        Some(shard.map_or(&self.quota, |shard| &shard.quota).full())
    }

    /// Returns `true` if a client can have another rate: each client has a bucket, and no other program reads or sets the
    /// rate in the store.
    pub fn is_adjustable(&self) -> bool {
        self.mode == Mode::PerClient && !matches!(self.quota.algorithm(), Algorithm::Redisson(_))
    }

    /// Returns an adjustable limiter with another rate and the same buckets, so that permits in use are kept.
    #[must_use]
    pub fn at_rate(&self, rate: u32) -> Self {
        let spread = match &self.spread {
            Spread::Partitions(numbers) => Spread::Partitions(numbers.clone()),
            Spread::Undivided | Spread::Shards(_) => Spread::Undivided, // only OVERALL limits have shards
        };
        let (name, quota) = (self.name.clone(), self.quota.at_rate(rate));
        Self { name, mode: self.mode, quota, spread, budget: self.budget, number: self.number }
    }
}
