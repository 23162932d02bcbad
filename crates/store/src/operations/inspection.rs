//! Reads buckets for operators, without any charge.

use crate::{Backend, Store, StoreError, backend};
use tidegate_limit::Wait;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, Decision};

/// The state of a bucket, or of all buckets that one client of a limit may use. An unused bucket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The store's clock when it read the bucket.
    pub now: Timestamp,
    /// The permits that requests can take now.
    pub remaining: u32,
    /// The permits in use, rounded up. More than the rate if the rate was lowered. For `leaky_bucket`, the permits that
    /// have not leaked out.
    pub used: u64,
    /// The wait of a request for the inspected number of permits.
    pub wait: Wait,
    /// Milliseconds until the time slot of that request, if it is granted now. 0 for algorithms without time slots.
    pub delay: u64,
    /// Milliseconds until the next permit in use returns; 0 if no permit is in use.
    pub reset: u64,
    /// When the store may drop the bucket; `None` if there is no stored bucket, or if it does not expire.
    pub expires_at: Option<Timestamp>,
    /// Whether the overflow bucket of the embedded store decides about this client.
    pub overflow: bool,
    /// The permits that open reservations reserve; `None` if the limit is no budget.
    pub reserved: Option<u64>,
}

impl Inspection {
    /// Creates the inspection of a bucket from the decision about a request that is not charged.
    pub fn new(now: Timestamp, decision: &Decision, used: u64, expires_at: Option<Timestamp>) -> Self {
        let Decision { remaining, wait, delay, reset, overflow, .. } = *decision;
        Self { now, remaining, used, wait, delay, reset, expires_at, overflow, reserved: None }
    }

    /// Returns the permits in use above those that the bucket can hold. `full` is their number.
    pub fn debt(&self, full: u32) -> u64 {
        self.used.saturating_sub(full.into())
    }

    /// Returns when a request for the inspected permits is granted; `None` if it never is.
    pub fn next_permit_at(&self) -> Option<Timestamp> {
        match self.wait {
            Wait::Now => Some(self.now),
            Wait::Millis(wait) => Some(self.now.plus_millis(wait)),
            Wait::Never => None,
        }
    }

    /// Combines the shards of a limiter. Their permits add up; a request is granted as soon as one shard grants it.
    fn with_shard(self, other: Self) -> Self {
        let first = if other.wait < self.wait { &other } else { &self };
        Self {
            now: self.now.max(other.now),
            remaining: self.remaining.saturating_add(other.remaining),
            used: self.used.saturating_add(other.used),
            wait: first.wait,
            delay: first.delay,
            reset: [self.reset, other.reset].into_iter().filter(|reset| *reset > 0).min().unwrap_or(0),
            expires_at: self.expires_at.max(other.expires_at),
            overflow: self.overflow || other.overflow,
            reserved: self.reserved,
        }
    }

    /// Combines the inspections of all [buckets](Charge::on_all_buckets) of a charge; `None` without buckets.
    pub fn combine(charge: &Charge, buckets: impl Iterator<Item = Self>) -> Option<Self> {
        match charge.limiter.shards().is_empty() {
            false => buckets.reduce(Self::with_shard),
            // The client's bucket is in one of the partitions; the buckets in the others do not exist.
            true => buckets.max_by_key(|bucket| (bucket.used, bucket.expires_at)),
        }
    }
}

impl Store {
    /// Returns the state of the bucket of a charge, as a request for its permits would find it now. Changes nothing. The shards
    /// of a limit are inspected one by one, and their permits are added up.
    ///
    /// # Errors
    /// The store could not read the bucket; see [`StoreError`].
    #[doc(hidden)]
    pub async fn inspect(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        backend!(self, |memory| memory.inspect(charge), |redis| redis.store().inspect_all(charge).await)
    }
}
