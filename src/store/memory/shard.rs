//! A part of the buckets, under one lock.

use std::mem::discriminant;
use std::sync::Arc;

use hashbrown::HashTable;

use super::place::{Owner, Place};
use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, Limiter, State};
use crate::store::StoreError;

/// How long sweeping is not tried again where it made no room, in milliseconds.
const CROWDED: u64 = 250;

/// Shards smaller than this are not swept.
pub(super) const SMALL: usize = 256;

/// Buckets, found by their places. On a cache line of its own, so that who locks one shard disturbs nobody at the next.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    buckets: HashTable<Bucket>,
    /// How many buckets it may grow to before it is swept.
    sweep_at: usize,
    /// Until when it is known that sweeping makes no room.
    crowded_until: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    hash: u64,
    owner: Owner,
    /// As it was last asked for; a reload brings another of the same name.
    limiter: Arc<Limiter>,
    state: State,
}

// === impl Shard ===

impl Default for Shard {
    fn default() -> Self {
        Self { buckets: HashTable::new(), sweep_at: SMALL, crowded_until: Timestamp::default() }
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Judges a charge, and notes where its bucket is.
    pub(super) fn check(&mut self, place: &mut Place<'_>, now: Timestamp) -> Decision {
        let (quota, permits) = (&place.charge.limiter.quota, place.charge.permits);
        match self.buckets.find_entry(place.hash, |bucket| bucket.is_at(place)) {
            Ok(bucket) => {
                place.slot = Some(bucket.bucket_index());
                bucket.get().state.check(quota, permits, now)
            }
            Err(_) => State::empty(quota).check(quota, permits, now),
        }
    }

    /// Sees to it that there is a place for the bucket before anything is charged.
    pub(super) fn make_room(&mut self, place: &Place<'_>, now: Timestamp, most: usize) -> Result<(), StoreError> {
        if self.buckets.len() < self.sweep_at.min(most) || place.charge.permits == 0 || self.find(place).is_some() {
            return Ok(());
        }
        if now >= self.crowded_until {
            self.sweep(now, most);
        }
        if self.buckets.len() >= most { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Forgets buckets that are full again. Where that makes no room it is not tried again for a while, so that a flood of
    /// new clients costs no more than their refusals.
    fn sweep(&mut self, now: Timestamp, most: usize) {
        self.buckets.retain(|bucket| bucket.state.full_at(&bucket.limiter.quota) > now);
        self.sweep_at = (self.buckets.len() * 2).max(SMALL);
        if self.buckets.len() >= most {
            if self.crowded_until == Timestamp::default() {
                tracing::warn!(buckets = most, "a part of the embedded store is full of buckets in use");
            }
            self.crowded_until = now.plus_millis(CROWDED);
        } else {
            self.crowded_until = Timestamp::default();
        }
    }

    pub(super) fn charge(&mut self, place: &Place<'_>, now: Timestamp) -> Decision {
        let charge = place.charge;
        if charge.permits == 0 {
            // It asks for nothing, and makes no bucket.
            let (quota, bucket) = (&charge.limiter.quota, self.find(place));
            return bucket.map_or(&State::empty(quota), |bucket| &bucket.state).check(quota, 0, now);
        }
        match place.slot.and_then(|slot| self.buckets.get_bucket_mut(slot)) {
            Some(bucket) => bucket.charge(charge, now),
            None => self.find_or_add(place).charge(charge, now),
        }
    }

    pub(super) fn settle(&mut self, place: &Place<'_>, now: Timestamp) {
        if let Some(bucket) = self.find_mut(place) {
            bucket.follow(&place.charge.limiter);
            bucket.state.settle(&bucket.limiter.quota, now);
        }
    }

    pub(super) fn give_back(&mut self, place: &Place<'_>, at: Timestamp, now: Timestamp) {
        if let Some(bucket) = self.find_mut(place) {
            bucket.state.give_back(&place.charge.limiter.quota, place.charge.permits, at, now);
        }
    }

    /// The slot of the bucket, which it has until one is added or the shard is swept.
    fn slot(&self, place: &Place<'_>) -> Option<usize> {
        self.buckets.find_bucket_index(place.hash, |bucket| bucket.is_at(place))
    }

    fn find(&self, place: &Place<'_>) -> Option<&Bucket> {
        self.buckets.get_bucket(place.slot.or_else(|| self.slot(place))?)
    }

    fn find_mut(&mut self, place: &Place<'_>) -> Option<&mut Bucket> {
        self.buckets.get_bucket_mut(place.slot.or_else(|| self.slot(place))?)
    }

    fn find_or_add(&mut self, place: &Place<'_>) -> &mut Bucket {
        let same = |bucket: &Bucket| bucket.is_at(place);
        let entry = self.buckets.entry(place.hash, same, |bucket| bucket.hash);
        entry.or_insert_with(|| Bucket::unused(place)).into_mut()
    }
}

// === impl Bucket ===

impl Bucket {
    fn unused(place: &Place<'_>) -> Self {
        let limiter = &place.charge.limiter;
        let (owner, state) = (place.owner(), State::empty(&limiter.quota));
        Self { hash: place.hash, owner, limiter: Arc::clone(limiter), state }
    }

    /// Is it the bucket of this name, algorithm and owner?
    fn is_at(&self, place: &Place<'_>) -> bool {
        let (own, asked) = (&self.limiter, &place.charge.limiter);
        let alike = || discriminant(&own.quota.algorithm()) == discriminant(&asked.quota.algorithm());
        place.is_of(&self.owner) && (Arc::ptr_eq(own, asked) || (own.name == asked.name && alike()))
    }

    fn charge(&mut self, charge: &Charge, now: Timestamp) -> Decision {
        self.follow(&charge.limiter);
        self.state.charge(&charge.limiter.quota, charge.permits, now)
    }

    /// From now on it is judged by the quota of this limiter.
    fn follow(&mut self, limiter: &Arc<Limiter>) {
        if !Arc::ptr_eq(&self.limiter, limiter) {
            self.limiter = Arc::clone(limiter);
        }
    }
}
