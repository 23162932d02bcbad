//! The store's capacity: how many buckets each limit may have.
//!
//! One half of the capacity is divided evenly among the limits and reserved for them. The other half is common: a limit
//! whose share is used up borrows from it, unless the limit is a shadow. So a limit with many new clients can use its
//! share and the common half, but never the share of another limit. An OVERALL limit has one bucket, which is not
//! counted.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use tidegate_limit::{Algorithm, Mode};
use tidegate_rules::charge::Limiter;

/// The capacity, and what each limit uses of it.
#[derive(Debug)]
pub(super) struct BucketCapacity {
    /// Half of the capacity.
    half: usize,
    /// Buckets reserved for each limit.
    share: AtomicUsize,
    /// Buckets left in the common half.
    common: AtomicUsize,
    limits: Mutex<HashMap<Key, Arc<LimitCapacity>>>,
}

/// A name and an algorithm. A limit keeps its buckets in a reload if both stay the same.
type Key = (String, Discriminant<Algorithm>);

/// The buckets that one PER_CLIENT limit uses.
#[derive(Debug, Default)]
pub(super) struct LimitCapacity {
    /// Whether the active rules have this limit. Buckets are reserved only for active limits.
    active: AtomicBool,
    counts: Mutex<BucketCounts>,
    /// Whether new clients share the overflow bucket.
    pub(super) overflowing: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct BucketCounts {
    reserved: usize,
    borrowed: usize,
}

// === impl BucketCapacity ===

impl BucketCapacity {
    pub(super) fn new(max_buckets: usize) -> Self {
        let half = max_buckets / 2;
        let (share, common) = (AtomicUsize::new(half), AtomicUsize::new(max_buckets - half));
        Self { half, share, common, limits: Mutex::default() }
    }

    /// Replaces the active limits, which were `previous`. Buckets in use stay.
    pub(super) fn set_active<'l>(
        &self,
        limiters: impl Iterator<Item = &'l Limiter>,
        previous: impl Iterator<Item = &'l Limiter>,
    ) {
        let mut limits = self.limits.lock();
        for limit_capacity in previous.filter_map(|limiter| limits.get(&key(limiter))) {
            limit_capacity.active.store(false, Ordering::Relaxed);
        }
        for limiter in limiters.filter(|limiter| limiter.mode == Mode::PerClient) {
            limits.entry(key(limiter)).or_default().active.store(true, Ordering::Relaxed);
        }
        limits.retain(|_, limit_capacity| {
            limit_capacity.is_active() || limit_capacity.bucket_count() > 0 || Arc::strong_count(limit_capacity) > 1
        });
        self.divide(&limits);
    }

    /// Returns the capacity of this limit. A limit that is seen for the first time becomes active.
    pub(super) fn limit_capacity_of(&self, limiter: &Limiter) -> Arc<LimitCapacity> {
        let mut limits = self.limits.lock();
        if let Some(limit_capacity) = limits.get(&key(limiter)) {
            return Arc::clone(limit_capacity);
        }
        let limit_capacity = Arc::clone(limits.entry(key(limiter)).or_default());
        limit_capacity.active.store(true, Ordering::Relaxed);
        self.divide(&limits);
        limit_capacity
    }

    /// Returns the capacity of this limit, if it has one.
    pub(super) fn get(&self, limiter: &Limiter) -> Option<Arc<LimitCapacity>> {
        self.limits.lock().get(&key(limiter)).cloned()
    }

    /// Reserves one bucket. Returns `false` if there is no capacity.
    pub(super) fn reserve(&self, limit_capacity: &LimitCapacity, shadow: bool) -> bool {
        let mut counts = limit_capacity.counts.lock();
        if counts.reserved < self.share_of(limit_capacity) {
            counts.reserved += 1;
            return true;
        }
        let borrows = !shadow
            && self
                .common
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| remaining.checked_sub(1))
                .is_ok();
        counts.borrowed += usize::from(borrows);
        borrows
    }

    /// Returns `true` if this limit can have another bucket.
    pub(super) fn has_capacity(&self, limit_capacity: &LimitCapacity, shadow: bool) -> bool {
        limit_capacity.counts.lock().reserved < self.share_of(limit_capacity)
            || (!shadow && self.common.load(Ordering::Relaxed) > 0)
    }

    /// Returns `true` if an eighth of the share or of the common half is free, so that the limit does not overflow
    /// again immediately.
    pub(super) fn has_ample_capacity(&self, limit_capacity: &LimitCapacity, shadow: bool) -> bool {
        let share = self.share_of(limit_capacity);
        let borrows = !shadow && self.common.load(Ordering::Relaxed) > self.half / 8;
        limit_capacity.counts.lock().reserved < share - share / 8 || borrows
    }

    /// Releases buckets, borrowed ones first.
    pub(super) fn release(&self, limit_capacity: &LimitCapacity, buckets: usize) {
        let mut counts = limit_capacity.counts.lock();
        let borrowed = buckets.min(counts.borrowed);
        counts.borrowed -= borrowed;
        counts.reserved -= (buckets - borrowed).min(counts.reserved);
        self.common.fetch_add(borrowed, Ordering::Relaxed);
    }

    /// Returns the number of buckets reserved for this limit.
    pub(super) fn share_of(&self, limit_capacity: &LimitCapacity) -> usize {
        if limit_capacity.is_active() { self.share.load(Ordering::Relaxed) } else { 0 }
    }

    fn divide(&self, limits: &HashMap<Key, Arc<LimitCapacity>>) {
        let active = limits.values().filter(|limit_capacity| limit_capacity.is_active()).count();
        self.share.store(self.half / active.max(1), Ordering::Relaxed);
    }
}

fn key(limiter: &Limiter) -> Key {
    (limiter.name.clone(), discriminant(&limiter.quota.algorithm()))
}

// === impl LimitCapacity ===

impl LimitCapacity {
    /// Returns the number of buckets that the limit uses.
    pub(super) fn bucket_count(&self) -> usize {
        let counts = self.counts.lock();
        counts.reserved + counts.borrowed
    }

    fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }
}
