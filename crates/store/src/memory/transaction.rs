//! One decision of the embedded store: locks, lookups, checks, charges.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::Memory;
use super::capacity::LimitCapacity;
use super::lock_shard::LockShard;
use super::lookup::{Location, Lookup};
use super::overflow::Overflow;
use super::reservations::Reservations;
use tidegate_limit::clock::Timestamp;

/// Decisions about more limits than this allocate memory.
const INLINE_CHARGES: usize = 8;

/// The charges of a decision, with the lookup of each.
pub(super) type Lookups<'c> = SmallVec<[Lookup<'c>; INLINE_CHARGES]>;

/// The shards that a decision has locked.
pub(super) type Locked<'m> = SmallVec<[MutexGuard<'m, LockShard>; INLINE_CHARGES]>;

/// A decision in progress: its charges, each with its decision, and the locks of their buckets.
pub(super) struct Transaction<'d, 'm, 'c> {
    memory: &'m Memory,
    lookups: &'d mut [Lookup<'c>],
    locked: &'d mut [MutexGuard<'m, LockShard>],
    /// Locked only if a charge goes to an overflow bucket.
    overflow: Option<MutexGuard<'m, Overflow>>,
}

impl<'d, 'm, 'c> Transaction<'d, 'm, 'c> {
    /// Finds the bucket of each charge. The shards of all lookups are locked.
    pub(super) fn new(memory: &'m Memory, lookups: &'d mut Lookups<'c>, locked: &'d mut Locked<'m>) -> Self {
        let mut transaction = Self { memory, lookups, locked, overflow: None };
        if !transaction.find() {
            transaction.reserve();
        }
        transaction
    }

    /// Locks the reservations, if a charge is of a budget.
    pub(super) fn lock_reservations(&mut self) -> Option<MutexGuard<'m, Reservations>> {
        self.memory.lock_reservations(self.lookups)
    }

    /// Checks all charges, without any change. Returns `true` if all live charges are granted.
    pub(super) fn check(&mut self, now: Timestamp) -> bool {
        for lookup in &mut *self.lookups {
            let lock_shard = lock_shard(self.locked, lookup);
            let overflow = overflow_of(lookup, lock_shard, &mut self.overflow);
            let decision = match overflow {
                Some((overflow, limit_capacity)) => overflow.check(limit_capacity, lookup, now),
                None => lock_shard.check(lookup, now),
            };
            lookup.decision = lookup.charge.turn.limit_delay(decision);
        }
        self.lookups.iter().all(|lookup| lookup.charge.shadow || lookup.decision.granted)
    }

    /// Charges the existing buckets, or updates them after a refusal. Runs before `charge_new`, since adding buckets
    /// moves existing ones.
    pub(super) fn charge_found(&mut self, granted: bool, now: Timestamp) {
        for lookup in &mut *self.lookups {
            let is_charged = granted && lookup.is_charged();
            let lock_shard = lock_shard(self.locked, lookup);
            match (overflow_of(lookup, lock_shard, &mut self.overflow), lookup.location) {
                (Some((overflow, limit_capacity)), _) if is_charged => {
                    lookup.decision = overflow.charge(limit_capacity, lookup, now);
                }
                (Some((overflow, limit_capacity)), _) => overflow.on_refusal(limit_capacity, lookup, now),
                (None, Location::Own { .. }) if is_charged => {
                    lookup.decision = lock_shard.charge(lookup, now).unwrap_or(lookup.decision);
                }
                (None, Location::Own { .. }) => lock_shard.on_refusal(lookup, now),
                _ => {}
            }
        }
    }

    /// Adds and charges the missing buckets.
    pub(super) fn charge_new(&mut self, granted: bool, now: Timestamp) {
        let Memory { capacity, hasher, .. } = self.memory;
        for lookup in &mut *self.lookups {
            let Location::New { table } = lookup.location else { continue };
            let lock_shard = lock_shard(self.locked, lookup);
            if granted && lookup.is_charged() {
                lookup.decision = lock_shard.charge_new(lookup, capacity, hasher, now).unwrap_or(lookup.decision);
            } else {
                lock_shard.release(table, capacity);
            }
            // A bucket was added, so the overflow of this limit may have ended.
            if let Some(limit_capacity) = lock_shard
                .limit_capacity(table)
                .filter(|limit_capacity| limit_capacity.overflowing.load(Ordering::Relaxed))
            {
                self.overflow.get_or_insert_with(|| self.memory.overflow.lock()).remove_if_recovered(
                    limit_capacity,
                    capacity,
                    now,
                );
            }
        }
    }

    /// Looks up all buckets. Returns `false` if one was not found.
    fn find(&mut self) -> bool {
        let mut all = true;
        for lookup in &mut *self.lookups {
            all &= lock_shard(self.locked, lookup).find(lookup);
        }
        all
    }

    /// Reserves capacity for the missing buckets. Without capacity, a charge goes to the overflow bucket of its limit.
    fn reserve(&mut self) {
        let capacity = &self.memory.capacity;
        if !self.have_capacity() {
            self.make_capacity();
        }
        for lookup in &mut *self.lookups {
            lock_shard(self.locked, lookup).reserve(lookup, capacity);
        }
        if self.lookups.iter().any(|lookup| matches!(lookup.location, Location::Overflow { .. })) {
            self.overflow = Some(self.memory.overflow.lock());
        }
    }

    /// Returns `true` if there are tables and capacity for the missing buckets, and no shard has to be swept.
    fn have_capacity(&mut self) -> bool {
        let Self { memory, lookups, locked, .. } = self;
        lookups.iter().filter(is_missing).all(|lookup| {
            let lock_shard = lock_shard(locked, lookup);
            !lock_shard.has_grown() && lock_shard.has_capacity(lookup, &memory.capacity)
        })
    }

    /// Adds the missing tables, and sweeps shards that have grown or whose limits have no capacity.
    #[cold]
    fn make_capacity(&mut self) {
        let (capacity, now) = (&self.memory.capacity, self.memory.clock.now());
        for lookup in self.lookups.iter().filter(is_missing) {
            let lock_shard = lock_shard(self.locked, lookup);
            lock_shard.sweep_if_grown(capacity, now);
            let Some(limit_capacity) = lock_shard.limit_capacity_for(lookup, capacity) else { continue };
            if !capacity.has_capacity(&limit_capacity, lookup.charge.shadow) {
                lock_shard.sweep_if_due(capacity, now);
                self.memory.sweep_other_shards(&limit_capacity, lookup.charge.shadow, now);
            }
        }
        // Sweeping may have removed buckets and tables that were found earlier.
        self.find();
        for lookup in self.lookups.iter().filter(is_missing) {
            lock_shard(self.locked, lookup).add_table(lookup, capacity);
        }
        // From here on no table moves.
        self.find();
    }
}

/// Returns `true` if the lookup found no bucket.
fn is_missing(lookup: &&Lookup<'_>) -> bool {
    matches!(lookup.location, Location::Unknown | Location::Missing { .. })
}

/// Locks the shards of these lookups.
#[inline]
pub(super) fn lock<'m>(memory: &'m Memory, lookups: &mut [Lookup<'_>], locked: &mut Locked<'m>) {
    // One bit for each shard: ascending order, no duplicates.
    let lock_shards = lookups.iter().fold(0_u64, |bits, lookup| bits | 1 << lookup.lock_shard());
    for lookup in lookups {
        let before = (1 << lookup.lock_shard()) - 1;
        lookup.lock = (lock_shards & before).count_ones() as usize;
    }
    let mut remaining = lock_shards;
    while remaining != 0 {
        locked.push(memory.lock_shards[remaining.trailing_zeros() as usize].lock());
        remaining &= remaining - 1;
    }
}

/// Returns the shard of this lookup, which must be locked.
#[inline]
fn lock_shard<'l>(locked: &'l mut [MutexGuard<'_, LockShard>], lookup: &Lookup<'_>) -> &'l mut LockShard {
    &mut locked[lookup.lock]
}

/// Returns the overflow buckets and the capacity of the limit, if this charge uses an overflow bucket.
#[inline]
fn overflow_of<'o>(
    lookup: &Lookup<'_>,
    lock_shard: &'o LockShard,
    overflow: &'o mut Option<MutexGuard<'_, Overflow>>,
) -> Option<(&'o mut Overflow, &'o Arc<LimitCapacity>)> {
    let Location::Overflow { table } = lookup.location else { return None };
    Some((overflow.as_mut()?, lock_shard.limit_capacity(table)?))
}
