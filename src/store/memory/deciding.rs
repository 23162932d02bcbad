//! One decision of the embedded store, from the locks that it takes to the last charge.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::Memory;
use super::overflow::Overflow;
use super::place::{Place, Seat};
use super::room::Room;
use super::shard::Shard;
use crate::clock::Timestamp;
use crate::limit::Decision;

/// Limits of one decision that need no memory of their own.
const FEW: usize = 4;

/// The charges of a decision, with their places.
pub(super) type Places<'c> = SmallVec<[Place<'c>; FEW]>;

/// Shards that are locked for a decision, with their numbers.
pub(super) type Locked<'m> = SmallVec<[(usize, MutexGuard<'m, Shard>); FEW]>;

/// The charges of a decision with the buckets that judge them, and the locks of these.
pub(super) struct Deciding<'d, 'm, 'c> {
    memory: &'m Memory,
    places: &'d mut [Place<'c>],
    locked: &'d mut [(usize, MutexGuard<'m, Shard>)],
    /// Only if somebody is judged by an overflow bucket.
    overflow: Option<MutexGuard<'m, Overflow>>,
}

impl<'d, 'm, 'c> Deciding<'d, 'm, 'c> {
    /// Finds out which bucket judges each charge. The shards of all places are locked.
    pub(super) fn begin(
        memory: &'m Memory,
        places: &'d mut Places<'c>,
        locked: &'d mut Locked<'m>,
        now: Option<Timestamp>,
    ) -> Self {
        let mut deciding = Self { memory, places, locked, overflow: None };
        if !deciding.find() {
            deciding.seat(now);
        }
        deciding
    }

    /// What each limit says.
    pub(super) fn check(&mut self, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(self.places.len());
        for place in &*self.places {
            let shard = shard(self.locked, place);
            let overflow = overflow_of(place, shard, &mut self.overflow);
            decisions.push(match overflow {
                Some((overflow, room)) => overflow.check(room, place, now),
                None => shard.check(place, now),
            });
        }
        decisions
    }

    /// Makes the charges on buckets that are there, or settles them. Before any is added, which may move others.
    pub(super) fn charge_found(&mut self, granted: bool, decisions: &mut [Decision], now: Timestamp) {
        for (place, decision) in self.places.iter().zip(decisions) {
            let (made, shard) = (granted && decision.granted, shard(self.locked, place));
            match (overflow_of(place, shard, &mut self.overflow), place.seat) {
                (Some((overflow, room)), _) if made => *decision = overflow.charge(room, place, now),
                (Some((overflow, room)), _) => overflow.settle(room, place, now),
                (None, Seat::Own { .. }) if made => *decision = shard.charge(place, now).unwrap_or(*decision),
                (None, Seat::Own { .. }) => shard.settle(place, now),
                _ => {}
            }
        }
    }

    /// Makes the charges on buckets that are added for them.
    pub(super) fn charge_new(&mut self, granted: bool, decisions: &mut [Decision], now: Timestamp) {
        let Memory { rooms, hasher, .. } = self.memory;
        for (place, decision) in self.places.iter_mut().zip(decisions) {
            let Seat::New { table } = place.seat else { continue };
            let shard = shard(self.locked, place);
            if granted && decision.granted {
                *decision = shard.charge_new(place, rooms, hasher, now).unwrap_or(*decision);
            } else {
                shard.leave_room(table, rooms);
            }
            // There was room: perhaps there is again.
            if let Some(room) = shard.room(table).filter(|room| room.overflowing.load(Ordering::Relaxed)) {
                self.overflow.get_or_insert_with(|| self.memory.overflow.lock()).end(room, rooms, now);
            }
        }
    }

    /// Looks for all buckets; are all there?
    fn find(&mut self) -> bool {
        let mut all = true;
        for place in &mut *self.places {
            all &= shard(self.locked, place).find(place);
        }
        all
    }

    /// Takes room for those that are not there; what has none is judged by the overflow bucket of its limit.
    fn seat(&mut self, now: Option<Timestamp>) {
        let (rooms, clock) = (&self.memory.rooms, &self.memory.clock);
        let now = now.unwrap_or_else(|| clock.now());
        let missing = |place: &&Place<'_>| matches!(place.seat, Seat::Unknown);
        for place in self.places.iter().filter(missing) {
            let shard = shard(self.locked, place);
            shard.sweep_if_grown(rooms, now);
            let Some(room) = shard.room_for(place, rooms) else { continue };
            if !rooms.is_left(&room, place.charge.shadow) {
                shard.sweep_for_room(rooms, now);
                self.memory.look_for_room(&room, place.charge.shadow, now);
            }
        }
        for place in self.places.iter().filter(missing) {
            shard(self.locked, place).add_table(place, rooms);
        }
        // Tables stay where they are from now on. Others than those that were missing may have been swept out.
        self.find();
        for place in self.places.iter_mut().filter(|place| matches!(place.seat, Seat::Unknown)) {
            shard(self.locked, place).take_room(place, rooms);
        }
        if self.places.iter().any(|place| matches!(place.seat, Seat::Overflow { .. })) {
            self.overflow = Some(self.memory.overflow.lock());
        }
    }
}

/// Locks the shards of these places.
pub(super) fn lock<'m>(memory: &'m Memory, places: &[Place<'_>]) -> Locked<'m> {
    // A bit for each, so that they are in ascending order, and each is there once.
    let mut left = places.iter().fold(0_u64, |bits, place| bits | 1 << place.shard());
    let mut locked = SmallVec::new();
    while left != 0 {
        let shard = left.trailing_zeros() as usize;
        locked.push((shard, memory.shards[shard].lock()));
        left &= left - 1;
    }
    locked
}

/// The shard of this place, which is one of those.
fn shard<'l>(locked: &'l mut [(usize, MutexGuard<'_, Shard>)], place: &Place<'_>) -> &'l mut Shard {
    let number = place.shard();
    let position = locked.iter().position(|(locked, _)| *locked == number).unwrap_or_default();
    &mut locked[position].1
}

/// What judges a place for which there is no room.
#[inline]
fn overflow_of<'o>(
    place: &Place<'_>,
    shard: &'o Shard,
    overflow: &'o mut Option<MutexGuard<'_, Overflow>>,
) -> Option<(&'o mut Overflow, &'o Arc<Room>)> {
    let Seat::Overflow { table } = place.seat else { return None };
    Some((overflow.as_mut()?, shard.room(table)?))
}
