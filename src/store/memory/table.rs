//! The buckets of one limit in one shard.

use std::mem::discriminant;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::owner::Owner;
use super::place::{self, Place};
use super::room::{Room, Rooms};
use crate::clock::Timestamp;
use crate::limit::{Limiter, State};

/// Buckets, found by their owners.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name_hash: u64,
    /// As it was last asked for; a reload brings another of the same name.
    limiter: Arc<Limiter>,
    /// What its buckets take room of; the one of an OVERALL limit takes none.
    room: Option<Arc<Room>>,
    buckets: HashTable<Bucket>,
}

/// Nothing but this is kept of a client.
#[derive(Debug)]
struct Bucket {
    owner: Owner,
    state: State,
}

// === impl Table ===

impl Table {
    pub(super) fn new(place: &Place<'_>, rooms: &Rooms) -> Self {
        let limiter = Arc::clone(&place.charge.limiter);
        let room = (!place.owner.is_everybody()).then(|| rooms.of(&limiter));
        Self { name_hash: place.name_hash, limiter, room, buckets: HashTable::new() }
    }

    /// Are the buckets of this name, algorithm and mode in it?
    pub(super) fn is_of(&self, place: &Place<'_>) -> bool {
        let (own, asked) = (&self.limiter, &place.charge.limiter);
        let alike = || discriminant(&own.quota.algorithm()) == discriminant(&asked.quota.algorithm());
        let same = Arc::ptr_eq(own, asked) || (own.name == asked.name && alike());
        same && self.room.is_none() == place.owner.is_everybody()
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Bytes of its buckets that were used once; others have memory of their own.
    #[cfg(test)]
    pub(super) fn occupied(&self) -> usize {
        self.buckets.allocation_size()
    }

    pub(super) fn room(&self) -> Option<&Arc<Room>> {
        self.room.as_ref()
    }

    /// The slot of the bucket, which it has until one is added or the table is swept.
    pub(super) fn slot(&self, place: &Place<'_>) -> Option<usize> {
        self.buckets.find_bucket_index(place.hash, |bucket| bucket.owner == place.owner)
    }

    pub(super) fn state(&self, slot: usize) -> Option<&State> {
        self.buckets.get_bucket(slot).map(|bucket| &bucket.state)
    }

    pub(super) fn state_mut(&mut self, slot: usize) -> Option<&mut State> {
        self.buckets.get_bucket_mut(slot).map(|bucket| &mut bucket.state)
    }

    /// Adds an unused bucket; returns its slot.
    pub(super) fn add(&mut self, place: &Place<'_>, hasher: &DefaultHashBuilder) -> usize {
        let bucket = Bucket { owner: place.owner, state: State::EMPTY };
        let rehash = |bucket: &Bucket| place::hash(bucket.owner, hasher);
        self.buckets.insert_unique(place.hash, bucket, rehash).bucket_index()
    }

    /// From now on its buckets are judged by the quota of this limiter.
    pub(super) fn follow(&mut self, limiter: &Arc<Limiter>) {
        if !Arc::ptr_eq(&self.limiter, limiter) {
            self.limiter = Arc::clone(limiter);
        }
    }

    /// Forgets buckets that are full again, and gives their room back; is one left?
    pub(super) fn sweep(&mut self, rooms: &Rooms, now: Timestamp) -> bool {
        let (before, quota) = (self.buckets.len(), &self.limiter.quota);
        self.buckets.retain(|bucket| bucket.state.full_at(quota) > now);
        if let Some(room) = &self.room {
            rooms.give_back(room, before - self.buckets.len());
        }
        !self.buckets.is_empty()
    }
}
