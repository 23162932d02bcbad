//! The store's capacity: how many buckets each limit may have.
//!
//! One half of the capacity is divided evenly among the limits and reserved for them. The other half is common: a limit
//! whose share is used up borrows from it, unless the limit is a shadow. So a limit that many new clients hit can use its
//! share and the common half, and never the share of another limit. An OVERALL limit has one bucket, which is not counted.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::limit::{Algorithm, Limiter, Mode};

/// The capacity, and what each limit uses of it.
#[derive(Debug)]
pub(super) struct BucketCapacity {
    /// Half of the capacity.
    half: usize,
    /// Buckets reserved for each limit.
    share: AtomicUsize,
    /// Buckets left in the common half.
    common: AtomicUsize,
    limits: Mutex<HashMap<Key, Arc<Allotment>>>,
}

/// A name and an algorithm: what a limit must keep in a reload to keep its buckets.
type Key = (String, Discriminant<Algorithm>);

/// The buckets that one PER_CLIENT limit uses.
#[derive(Debug, Default)]
pub(super) struct Allotment {
    /// Whether the rules in force have it. Nothing is reserved for other limits.
    in_force: AtomicBool,
    held: Mutex<Held>,
    /// Whether new clients share the overflow bucket.
    pub(super) overflowing: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    reserved: usize,
    borrowed: usize,
}

// === impl BucketCapacity ===

impl BucketCapacity {
    pub(super) fn new(most: usize) -> Self {
        let half = most / 2;
        let (share, common) = (AtomicUsize::new(half), AtomicUsize::new(most - half));
        Self { half, share, common, limits: Mutex::default() }
    }

    /// Replaces the limits that `were` in force. Buckets in use stay.
    pub(super) fn set_in_force<'l>(
        &self,
        limiters: impl Iterator<Item = &'l Limiter>,
        were: impl Iterator<Item = &'l Limiter>,
    ) {
        let mut limits = self.limits.lock();
        for allotment in were.filter_map(|limiter| limits.get(&key(limiter))) {
            allotment.in_force.store(false, Ordering::Relaxed);
        }
        for limiter in limiters.filter(|limiter| limiter.mode == Mode::PerClient) {
            limits.entry(key(limiter)).or_default().in_force.store(true, Ordering::Relaxed);
        }
        limits
            .retain(|_, allotment| allotment.is_in_force() || allotment.held() > 0 || Arc::strong_count(allotment) > 1);
        self.divide(&limits);
    }

    /// The allotment of this limit. A limit seen for the first time is in force from now on.
    pub(super) fn allotment_of(&self, limiter: &Limiter) -> Arc<Allotment> {
        let mut limits = self.limits.lock();
        if let Some(allotment) = limits.get(&key(limiter)) {
            return Arc::clone(allotment);
        }
        let allotment = Arc::clone(limits.entry(key(limiter)).or_default());
        allotment.in_force.store(true, Ordering::Relaxed);
        self.divide(&limits);
        allotment
    }

    /// The allotment of this limit, if it has one.
    pub(super) fn known(&self, limiter: &Limiter) -> Option<Arc<Allotment>> {
        self.limits.lock().get(&key(limiter)).cloned()
    }

    /// Reserves one bucket; false if there is no capacity.
    pub(super) fn reserve(&self, allotment: &Allotment, shadow: bool) -> bool {
        let mut held = allotment.held.lock();
        if held.reserved < self.share_of(allotment) {
            held.reserved += 1;
            return true;
        }
        let borrows =
            !shadow && self.common.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        held.borrowed += usize::from(borrows);
        borrows
    }

    /// Can this limit have another bucket?
    pub(super) fn is_free(&self, allotment: &Allotment, shadow: bool) -> bool {
        allotment.held.lock().reserved < self.share_of(allotment)
            || (!shadow && self.common.load(Ordering::Relaxed) > 0)
    }

    /// Is an eighth of the share or of the common half free? Then the limit does not overflow again at once.
    pub(super) fn is_ample(&self, allotment: &Allotment, shadow: bool) -> bool {
        let share = self.share_of(allotment);
        let borrows = !shadow && self.common.load(Ordering::Relaxed) > self.half / 8;
        allotment.held.lock().reserved < share - share / 8 || borrows
    }

    /// Releases so many buckets, borrowed ones first.
    pub(super) fn release(&self, allotment: &Allotment, buckets: usize) {
        let mut held = allotment.held.lock();
        let borrowed = buckets.min(held.borrowed);
        held.borrowed -= borrowed;
        held.reserved -= (buckets - borrowed).min(held.reserved);
        self.common.fetch_add(borrowed, Ordering::Relaxed);
    }

    /// How many buckets are reserved for this limit.
    pub(super) fn share_of(&self, allotment: &Allotment) -> usize {
        if allotment.is_in_force() { self.share.load(Ordering::Relaxed) } else { 0 }
    }

    fn divide(&self, limits: &HashMap<Key, Arc<Allotment>>) {
        let in_force = limits.values().filter(|allotment| allotment.is_in_force()).count();
        self.share.store(self.half / in_force.max(1), Ordering::Relaxed);
    }
}

fn key(limiter: &Limiter) -> Key {
    (limiter.name.clone(), discriminant(&limiter.quota.algorithm()))
}

// === impl Allotment ===

impl Allotment {
    /// How many buckets it uses.
    pub(super) fn held(&self) -> usize {
        let held = self.held.lock();
        held.reserved + held.borrowed
    }

    fn is_in_force(&self) -> bool {
        self.in_force.load(Ordering::Relaxed)
    }
}
