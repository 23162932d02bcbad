//! Who may have how many buckets: the cap, shared out among the limits.
//!
//! One half of the cap is shared out evenly, and what a limit has of it is kept for it. The other half is for whoever comes
//! first: a limit whose share is used up takes of it what it needs, unless it only watches. So the flood of one limit ends
//! at its share and the common half; what is kept for the others stays theirs. An OVERALL limit has one bucket and needs no
//! room.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::limit::{Algorithm, Limiter, Mode};

/// The room of all limits.
#[derive(Debug)]
pub(super) struct Rooms {
    /// A half of the cap.
    half: usize,
    /// What is kept for each limit.
    share: AtomicUsize,
    /// What is left of the common half.
    common: AtomicUsize,
    limits: Mutex<HashMap<Key, Arc<Room>>>,
}

/// Limits with the same name and algorithm have the same buckets, whatever else a reload has changed.
type Key = (String, Discriminant<Algorithm>);

/// The room of one PER_CLIENT limit.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Is it among the rules in force? Nothing is kept for one that is not.
    in_force: AtomicBool,
    held: Mutex<Held>,
    /// Did it run out of room, and is not known to be over that?
    pub(super) overflowing: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    of_its_share: usize,
    borrowed: usize,
}

// === impl Rooms ===

impl Rooms {
    pub(super) fn new(most: usize) -> Self {
        let half = most / 2;
        let (share, common) = (AtomicUsize::new(half), AtomicUsize::new(most - half));
        Self { half, share, common, limits: Mutex::default() }
    }

    /// From now on these limits are in force, and no longer those that `were`. What these have in use stays.
    pub(super) fn keep_for<'l>(
        &self,
        limiters: impl Iterator<Item = &'l Limiter>,
        were: impl Iterator<Item = &'l Limiter>,
    ) {
        let mut limits = self.limits.lock();
        for room in were.filter_map(|limiter| limits.get(&key(limiter))) {
            room.in_force.store(false, Ordering::Relaxed);
        }
        for limiter in limiters.filter(|limiter| limiter.mode == Mode::PerClient) {
            limits.entry(key(limiter)).or_default().in_force.store(true, Ordering::Relaxed);
        }
        limits.retain(|_, room| room.is_in_force() || room.held() > 0 || Arc::strong_count(room) > 1);
        self.share_out(&limits);
    }

    /// The room of this limit. One that nobody has announced is in force since somebody asks for it.
    pub(super) fn of(&self, limiter: &Limiter) -> Arc<Room> {
        let mut limits = self.limits.lock();
        if let Some(room) = limits.get(&key(limiter)) {
            return Arc::clone(room);
        }
        let room = Arc::clone(limits.entry(key(limiter)).or_default());
        room.in_force.store(true, Ordering::Relaxed);
        self.share_out(&limits);
        room
    }

    /// The room of this limit, if anybody has asked for it.
    pub(super) fn known(&self, limiter: &Limiter) -> Option<Arc<Room>> {
        self.limits.lock().get(&key(limiter)).cloned()
    }

    /// Takes room for one bucket of this limit, if there is any.
    pub(super) fn take(&self, room: &Room, shadow: bool) -> bool {
        let mut held = room.held.lock();
        if held.of_its_share < self.share_of(room) {
            held.of_its_share += 1;
            return true;
        }
        let borrows =
            !shadow && self.common.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        held.borrowed += usize::from(borrows);
        borrows
    }

    /// Is there room for another bucket of this limit?
    pub(super) fn is_left(&self, room: &Room, shadow: bool) -> bool {
        room.held.lock().of_its_share < self.share_of(room) || (!shadow && self.common.load(Ordering::Relaxed) > 0)
    }

    /// Is there so much room that it does not run out of it with the next few clients?
    pub(super) fn is_ample(&self, room: &Room, shadow: bool) -> bool {
        let share = self.share_of(room);
        let borrows = !shadow && self.common.load(Ordering::Relaxed) > self.half / 8;
        room.held.lock().of_its_share < share - share / 8 || borrows
    }

    /// So many buckets of this limit are gone. What was borrowed is returned first.
    pub(super) fn give_back(&self, room: &Room, buckets: usize) {
        let mut held = room.held.lock();
        let borrowed = buckets.min(held.borrowed);
        held.borrowed -= borrowed;
        held.of_its_share -= (buckets - borrowed).min(held.of_its_share);
        self.common.fetch_add(borrowed, Ordering::Relaxed);
    }

    /// How many buckets are kept for this limit, whatever others do.
    pub(super) fn share_of(&self, room: &Room) -> usize {
        if room.is_in_force() { self.share.load(Ordering::Relaxed) } else { 0 }
    }

    fn share_out(&self, limits: &HashMap<Key, Arc<Room>>) {
        let in_force = limits.values().filter(|room| room.is_in_force()).count();
        self.share.store(self.half / in_force.max(1), Ordering::Relaxed);
    }
}

fn key(limiter: &Limiter) -> Key {
    (limiter.name.clone(), discriminant(&limiter.quota.algorithm()))
}

// === impl Room ===

impl Room {
    /// How many buckets it has.
    pub(super) fn held(&self) -> usize {
        let held = self.held.lock();
        held.of_its_share + held.borrowed
    }

    fn is_in_force(&self) -> bool {
        self.in_force.load(Ordering::Relaxed)
    }
}
