//! Overflow buckets: one for each limit that is out of capacity, with the limit's own rate. New clients share it.
//!
//! So every request is counted, and no bucket in use is evicted. Each bucket keeps its law. A client that moves from the
//! overflow bucket to its own, or back after its own was full and swept, is granted what both allow: at most twice the
//! rate in an interval.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::capacity::{Allotment, BucketCapacity};
use super::lookup::Lookup;
use crate::clock::Timestamp;
use crate::limit::{BucketState, Decision, Limiter};

/// The overflow buckets, by the address of the limit's allotment.
#[derive(Debug, Default)]
pub(super) struct Overflow(HashMap<usize, Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Held so that its address is not reused.
    allotment: Arc<Allotment>,
    limiter: Arc<Limiter>,
    /// Whether the first charge was a shadow.
    shadow: bool,
    state: BucketState,
}

impl Overflow {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn check(&mut self, allotment: &Arc<Allotment>, lookup: &Lookup<'_>, now: Timestamp) -> Decision {
        let (quota, permits) = (&lookup.charge.limiter.quota, lookup.charge.permits);
        Decision { overflow: true, ..self.bucket(allotment, lookup).state.check(quota, permits, now) }
    }

    pub(super) fn charge(&mut self, allotment: &Arc<Allotment>, lookup: &Lookup<'_>, now: Timestamp) -> Decision {
        let (quota, permits) = (&lookup.charge.limiter.quota, lookup.charge.permits);
        Decision { overflow: true, ..self.bucket(allotment, lookup).state.charge(quota, permits, now) }
    }

    pub(super) fn on_refusal(&mut self, allotment: &Arc<Allotment>, lookup: &Lookup<'_>, now: Timestamp) {
        self.bucket(allotment, lookup).state.on_refusal(&lookup.charge.limiter.quota, now);
    }

    pub(super) fn give_back(&mut self, allotment: &Arc<Allotment>, lookup: &Lookup<'_>, at: Timestamp, now: Timestamp) {
        if let Some(bucket) = self.0.get_mut(&address(allotment)) {
            bucket.state.give_back(&lookup.charge.limiter.quota, lookup.charge.permits, at, now);
        }
    }

    /// Removes the bucket of this limit if it is full and the limit has ample capacity again.
    pub(super) fn end(&mut self, allotment: &Arc<Allotment>, capacity: &BucketCapacity, now: Timestamp) {
        if self.0.get(&address(allotment)).is_some_and(|bucket| bucket.ends(capacity, now)) {
            self.0.remove(&address(allotment));
        }
    }

    /// Does the same for all limits.
    pub(super) fn end_all(&mut self, capacity: &BucketCapacity, now: Timestamp) {
        self.0.retain(|_, bucket| !bucket.ends(capacity, now));
    }

    fn bucket(&mut self, allotment: &Arc<Allotment>, lookup: &Lookup<'_>) -> &mut Bucket {
        let limiter = &lookup.charge.limiter;
        let bucket =
            self.0.entry(address(allotment)).or_insert_with(|| Bucket::new(allotment, limiter, lookup.charge.shadow));
        if !Arc::ptr_eq(&bucket.limiter, limiter) {
            bucket.limiter = Arc::clone(limiter);
        }
        bucket
    }
}

fn address(allotment: &Arc<Allotment>) -> usize {
    Arc::as_ptr(allotment).addr()
}

// === impl Bucket ===

impl Bucket {
    fn new(allotment: &Arc<Allotment>, limiter: &Arc<Limiter>, shadow: bool) -> Self {
        allotment.overflowing.store(true, Ordering::Relaxed);
        tracing::warn!(
            limit = limiter.name,
            buckets = allotment.held(),
            "no room for new clients: they share one bucket"
        );
        Self { allotment: Arc::clone(allotment), limiter: Arc::clone(limiter), shadow, state: BucketState::EMPTY }
    }

    /// Is it full, with ample capacity? Then logs that the overflow has ended.
    fn ends(&self, capacity: &BucketCapacity, now: Timestamp) -> bool {
        let is_over = self.state.full_at(&self.limiter.quota) <= now && capacity.is_ample(&self.allotment, self.shadow);
        if is_over {
            self.allotment.overflowing.store(false, Ordering::Relaxed);
            tracing::info!(limit = self.limiter.name, "new clients have buckets of their own again");
        }
        is_over
    }
}
