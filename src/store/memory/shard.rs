//! A part of the buckets, under one lock.

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::place::{Place, Seat};
use super::room::{Room, Rooms};
use super::table::Table;
use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, State};

/// How long sweeping is not tried again where room is scarce, in milliseconds: a flood of new clients costs little.
pub(super) const CROWDED: u64 = 250;

/// Shards smaller than this are not swept.
pub(super) const SMALL: usize = 256;

/// The limits that have buckets here. On a cache line of its own, so that who locks one shard disturbs nobody at the next.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    tables: HashTable<Table>,
    /// How many buckets all of them hold.
    buckets: usize,
    /// How many it may grow to before it is swept.
    sweep_at: usize,
    /// Until when it is not swept for want of room.
    crowded_until: Timestamp,
}

// === impl Shard ===

impl Default for Shard {
    fn default() -> Self {
        Self { tables: HashTable::new(), buckets: 0, sweep_at: SMALL, crowded_until: Timestamp::default() }
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.buckets
    }

    /// Bytes of its tables.
    #[cfg(test)]
    pub(super) fn occupied(&self) -> usize {
        self.tables.iter().map(Table::occupied).sum::<usize>() + self.tables.allocation_size() + size_of::<Self>()
    }

    /// Looks for the bucket of a charge; is it there?
    #[inline]
    pub(super) fn find(&self, place: &mut Place<'_>) -> bool {
        let at = |table| self.tables.get_bucket(table)?.slot(place).map(|slot| Seat::Own { table, slot });
        place.seat = self.table(place).and_then(at).unwrap_or(Seat::Unknown);
        matches!(place.seat, Seat::Own { .. })
    }

    /// Sweeps if many buckets have come since that was done last.
    pub(super) fn sweep_if_grown(&mut self, rooms: &Rooms, now: Timestamp) {
        if self.buckets >= self.sweep_at {
            self.sweep(rooms, now);
        }
    }

    /// Sweeps for want of room, unless that was done a moment ago; returns how many buckets were looked at.
    pub(super) fn sweep_for_room(&mut self, rooms: &Rooms, now: Timestamp) -> usize {
        if now < self.crowded_until {
            return 0;
        }
        self.crowded_until = now.plus_millis(CROWDED);
        let before = self.buckets;
        self.sweep(rooms, now);
        before
    }

    /// Forgets buckets that are full again; a limit whose buckets are all gone is forgotten too.
    fn sweep(&mut self, rooms: &Rooms, now: Timestamp) {
        self.tables.retain(|table| table.sweep(rooms, now));
        self.buckets = self.tables.iter().map(Table::len).sum();
        self.sweep_at = (self.buckets * 2).max(SMALL);
    }

    /// What the bucket of a charge takes room of; that of an OVERALL limit takes none.
    pub(super) fn room_for(&self, place: &Place<'_>, rooms: &Rooms) -> Option<Arc<Room>> {
        match self.table(place) {
            Some(table) => self.room(table).cloned(),
            None => (!place.owner.is_everybody()).then(|| rooms.of(&place.charge.limiter)),
        }
    }

    /// Sees to it that the limit has a table.
    pub(super) fn add_table(&mut self, place: &Place<'_>, rooms: &Rooms) {
        if self.table(place).is_none() {
            self.tables.insert_unique(place.name_hash, Table::new(place, rooms), |table| table.name_hash);
        }
    }

    /// Takes room for a bucket that is not there. Tables are not added or removed any more until all is decided.
    pub(super) fn take_room(&self, place: &mut Place<'_>, rooms: &Rooms) {
        let Some(table) = self.table(place) else { return };
        let has_room = self.room(table).is_none_or(|room| rooms.take(room, place.charge.shadow));
        place.seat = if has_room { Seat::New { table } } else { Seat::Overflow { table } };
    }

    /// Judges a charge by its own bucket.
    #[inline]
    pub(super) fn check(&self, place: &Place<'_>, now: Timestamp) -> Decision {
        let (quota, permits) = (&place.charge.limiter.quota, place.charge.permits);
        match self.state(place) {
            Some(state) => state.check(quota, permits, now),
            None => State::EMPTY.check(quota, permits, now),
        }
    }

    /// Makes a charge that was granted, on a bucket that is there.
    pub(super) fn charge(&mut self, place: &Place<'_>, now: Timestamp) -> Option<Decision> {
        let Charge { limiter, permits, .. } = place.charge;
        Some(self.state_mut(place)?.charge(&limiter.quota, *permits, now))
    }

    /// Makes a charge that was granted, on a bucket that is added for it, unless the decision has just added it, or nothing
    /// is asked for.
    pub(super) fn charge_new(
        &mut self,
        place: &mut Place<'_>,
        rooms: &Rooms,
        hasher: &DefaultHashBuilder,
        now: Timestamp,
    ) -> Option<Decision> {
        let Seat::New { table } = place.seat else { return None };
        if self.find(place) || place.charge.permits == 0 {
            self.leave_room(table, rooms);
        } else {
            let slot = self.tables.get_bucket_mut(table)?.add(place, hasher);
            place.seat = Seat::Own { table, slot };
            self.buckets += 1;
        }
        self.charge(place, now)
    }

    /// Gives back the room that was taken for a bucket which was not added after all.
    pub(super) fn leave_room(&self, table: usize, rooms: &Rooms) {
        if let Some(room) = self.room(table) {
            rooms.give_back(room, 1);
        }
    }

    /// What the buckets of a table take room of.
    pub(super) fn room(&self, table: usize) -> Option<&Arc<Room>> {
        self.tables.get_bucket(table)?.room()
    }

    /// After a refusal.
    pub(super) fn settle(&mut self, place: &Place<'_>, now: Timestamp) {
        if let Some(state) = self.state_mut(place) {
            state.settle(&place.charge.limiter.quota, now);
        }
    }

    pub(super) fn give_back(&mut self, place: &Place<'_>, at: Timestamp, now: Timestamp) {
        if let Some(state) = self.state_mut(place) {
            state.give_back(&place.charge.limiter.quota, place.charge.permits, at, now);
        }
    }

    #[inline]
    fn table(&self, place: &Place<'_>) -> Option<usize> {
        self.tables.find_bucket_index(place.name_hash, |table| table.is_of(place))
    }

    #[inline]
    fn state(&self, place: &Place<'_>) -> Option<&State> {
        let Seat::Own { table, slot } = place.seat else { return None };
        self.tables.get_bucket(table)?.state(slot)
    }

    /// The bucket, which from now on is judged by the limiter that asks.
    #[inline]
    fn state_mut(&mut self, place: &Place<'_>) -> Option<&mut State> {
        let Seat::Own { table, slot } = place.seat else { return None };
        let table = self.tables.get_bucket_mut(table)?;
        table.follow(&place.charge.limiter);
        table.state_mut(slot)
    }
}
