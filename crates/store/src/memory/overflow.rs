//! Overflow buckets: one for each limit that is out of capacity, with the limit's own rate. New clients share it.
//!
//! So every request is counted, and no bucket in use is evicted. Each bucket keeps its guarantee. A client can move
//! from the overflow bucket to its own bucket, or back after its own bucket was full and removed. Then it can get the
//! permits of both: at most twice the rate in an interval.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::capacity::{BucketCapacity, LimitCapacity};
use super::lookup::Lookup;
use tidegate_limit::BucketState;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Decision, Limiter};

/// The overflow buckets, by the address of the limit's [`LimitCapacity`].
#[derive(Debug, Default)]
pub(super) struct Overflow(HashMap<usize, Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Kept alive so that its address is not reused.
    limit_capacity: Arc<LimitCapacity>,
    limiter: Arc<Limiter>,
    /// Whether the first charge was a shadow.
    shadow: bool,
    state: BucketState,
}

impl Overflow {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bucket of this limit, if there is one.
    pub(super) fn state(&self, limit_capacity: &Arc<LimitCapacity>) -> Option<BucketState> {
        self.0.get(&address(limit_capacity)).map(|bucket| bucket.state.clone())
    }

    /// Empties the bucket of this limit, so that all of its permits are free. It is removed like any full bucket.
    pub(super) fn empty(&mut self, limit_capacity: &Arc<LimitCapacity>) {
        if let Some(bucket) = self.0.get_mut(&address(limit_capacity)) {
            bucket.state = BucketState::EMPTY;
        }
    }

    pub(super) fn check(
        &mut self,
        limit_capacity: &Arc<LimitCapacity>,
        lookup: &Lookup<'_>,
        now: Timestamp,
    ) -> Decision {
        Decision { overflow: true, ..lookup.evaluate(&self.bucket(limit_capacity, lookup).state, now) }
    }

    pub(super) fn charge(
        &mut self,
        limit_capacity: &Arc<LimitCapacity>,
        lookup: &Lookup<'_>,
        now: Timestamp,
    ) -> Decision {
        Decision { overflow: true, ..lookup.make(&mut self.bucket(limit_capacity, lookup).state, now) }
    }

    pub(super) fn on_refusal(&mut self, limit_capacity: &Arc<LimitCapacity>, lookup: &Lookup<'_>, now: Timestamp) {
        self.bucket(limit_capacity, lookup).state.on_refusal(&lookup.charge.limiter.quota, now);
    }

    pub(super) fn give_back(
        &mut self,
        limit_capacity: &Arc<LimitCapacity>,
        lookup: &Lookup<'_>,
        at: Timestamp,
        now: Timestamp,
    ) {
        if let Some(bucket) = self.0.get_mut(&address(limit_capacity)) {
            bucket.state.give_back(&lookup.charge.limiter.quota, lookup.charge.permits, at, now);
        }
    }

    /// Removes the bucket of this limit if it is full and the limit has ample capacity again.
    pub(super) fn remove_if_recovered(
        &mut self,
        limit_capacity: &Arc<LimitCapacity>,
        capacity: &BucketCapacity,
        now: Timestamp,
    ) {
        if self.0.get(&address(limit_capacity)).is_some_and(|bucket| bucket.has_recovered(capacity, now)) {
            self.0.remove(&address(limit_capacity));
        }
    }

    /// Removes the buckets of all limits that have recovered.
    pub(super) fn remove_recovered(&mut self, capacity: &BucketCapacity, now: Timestamp) {
        self.0.retain(|_, bucket| !bucket.has_recovered(capacity, now));
    }

    fn bucket(&mut self, limit_capacity: &Arc<LimitCapacity>, lookup: &Lookup<'_>) -> &mut Bucket {
        let limiter = &lookup.charge.limiter;
        let bucket = self
            .0
            .entry(address(limit_capacity))
            .or_insert_with(|| Bucket::new(limit_capacity, limiter, lookup.charge.shadow));
        if !Arc::ptr_eq(&bucket.limiter, limiter) {
            bucket.limiter = Arc::clone(limiter);
        }
        bucket
    }
}

fn address(limit_capacity: &Arc<LimitCapacity>) -> usize {
    Arc::as_ptr(limit_capacity).addr()
}

// === impl Bucket ===

impl Bucket {
    fn new(limit_capacity: &Arc<LimitCapacity>, limiter: &Arc<Limiter>, shadow: bool) -> Self {
        limit_capacity.overflowing.store(true, Ordering::Relaxed);
        tracing::warn!(
            limit = limiter.name,
            buckets = limit_capacity.bucket_count(),
            "bucket capacity exhausted, new clients share one bucket"
        );
        Self {
            limit_capacity: Arc::clone(limit_capacity),
            limiter: Arc::clone(limiter),
            shadow,
            state: BucketState::EMPTY,
        }
    }

    /// Returns `true` if the bucket is full and the limit has ample capacity, and logs the end of the overflow.
    fn has_recovered(&self, capacity: &BucketCapacity, now: Timestamp) -> bool {
        let is_over = self.state.full_at(&self.limiter.quota) <= now
            && capacity.has_ample_capacity(&self.limit_capacity, self.shadow);
        if is_over {
            self.limit_capacity.overflowing.store(false, Ordering::Relaxed);
            tracing::info!(
                limit = self.limiter.name,
                "bucket capacity available again, new clients have their own buckets"
            );
        }
        is_over
    }
}
