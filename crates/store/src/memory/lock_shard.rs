//! A lock shard: a fraction of the buckets, under one lock.

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::capacity::{BucketCapacity, LimitCapacity};
use super::lookup::{Location, Lookup};
use super::owner::Owner;
use super::table::Table;
use tidegate_limit::BucketState;
use tidegate_limit::Quota;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Decision, Limiter};

/// The pause of a full store between sweeps, in milliseconds, so that a flood of new clients does not cause permanent
/// sweeps.
pub(super) const SWEEP_PAUSE: u64 = 250;

/// Shards with fewer buckets are not swept.
pub(super) const MIN_SWEEP_SIZE: usize = 256;

/// The limits with buckets in this shard. Aligned to a cache line, so that locking one shard does not slow down its
/// neighbour.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct LockShard {
    tables: HashTable<Table>,
    /// The number of buckets in all tables.
    buckets: usize,
    /// The number of buckets at which the shard is swept.
    sweep_at: usize,
    /// A lack of capacity causes no sweep before this time.
    no_sweep_until: Timestamp,
}

// === impl LockShard ===

impl Default for LockShard {
    fn default() -> Self {
        Self { tables: HashTable::new(), buckets: 0, sweep_at: MIN_SWEEP_SIZE, no_sweep_until: Timestamp::default() }
    }
}

impl LockShard {
    pub(super) fn len(&self) -> usize {
        self.buckets
    }

    /// Returns the bytes of its tables.
    #[cfg(test)]
    pub(super) fn occupied(&self) -> usize {
        self.tables.iter().map(Table::occupied).sum::<usize>() + self.tables.allocation_size() + size_of::<Self>()
    }

    /// Looks up the bucket of a charge. Returns `false` if it is missing.
    #[inline]
    pub(super) fn find(&self, lookup: &mut Lookup<'_>) -> bool {
        let index_of = |table| self.tables.get_bucket(table).and_then(|table: &Table| table.index(lookup));
        lookup.location = match self.table(lookup).map(|table| (table, index_of(table))) {
            Some((table, Some(index))) => Location::Own { table, index },
            Some((table, None)) => Location::Missing { table },
            None => Location::Unknown,
        };
        matches!(lookup.location, Location::Own { .. })
    }

    /// Returns `true` if the number of buckets has doubled since the last sweep.
    pub(super) fn has_grown(&self) -> bool {
        self.buckets >= self.sweep_at
    }

    /// Sweeps if the number of buckets has doubled since the last sweep.
    pub(super) fn sweep_if_grown(&mut self, capacity: &BucketCapacity, now: Timestamp) {
        if self.has_grown() {
            self.sweep(capacity, now);
        }
    }

    /// Sweeps to free capacity, unless the last sweep was recent. Returns the number of visited buckets.
    pub(super) fn sweep_if_due(&mut self, capacity: &BucketCapacity, now: Timestamp) -> usize {
        if now < self.no_sweep_until {
            return 0;
        }
        self.no_sweep_until = now.plus_millis(SWEEP_PAUSE);
        let before = self.buckets;
        self.sweep(capacity, now);
        before
    }

    /// Removes full buckets and empty tables.
    fn sweep(&mut self, capacity: &BucketCapacity, now: Timestamp) {
        self.tables.retain(|table| table.sweep(capacity, now));
        self.buckets = self.tables.iter().map(Table::len).sum();
        self.sweep_at = (self.buckets * 2).max(MIN_SWEEP_SIZE);
    }

    /// Returns the capacity of a charge's limit; `None` for an OVERALL limit.
    pub(super) fn limit_capacity_for(
        &self,
        lookup: &Lookup<'_>,
        capacity: &BucketCapacity,
    ) -> Option<Arc<LimitCapacity>> {
        match self.table(lookup) {
            Some(table) => self.limit_capacity(table).cloned(),
            None => (!lookup.owner.is_overall()).then(|| capacity.limit_capacity_of(&lookup.charge.limiter)),
        }
    }

    /// Adds a table for the limit, unless there is one.
    pub(super) fn add_table(&mut self, lookup: &Lookup<'_>, capacity: &BucketCapacity) {
        if self.table(lookup).is_none() {
            self.tables.insert_unique(lookup.name_hash, Table::new(lookup, capacity), |table| table.name_hash);
        }
    }

    /// Returns `true` if there is a table and capacity for a missing bucket.
    #[inline]
    pub(super) fn has_capacity(&self, lookup: &Lookup<'_>, capacity: &BucketCapacity) -> bool {
        let Location::Missing { table } = lookup.location else { return false };
        self.limit_capacity(table)
            .is_none_or(|limit_capacity| capacity.has_capacity(limit_capacity, lookup.charge.shadow))
    }

    /// Reserves capacity for a missing bucket. No table may be added or removed until the decision is made.
    #[inline]
    pub(super) fn reserve(&self, lookup: &mut Lookup<'_>, capacity: &BucketCapacity) {
        let Location::Missing { table } = lookup.location else { return };
        let reserved = self
            .limit_capacity(table)
            .is_none_or(|limit_capacity| capacity.reserve(limit_capacity, lookup.charge.shadow));
        lookup.location = if reserved { Location::New { table } } else { Location::Overflow { table } };
    }

    /// Checks a charge on its own bucket.
    #[inline]
    pub(super) fn check(&self, lookup: &Lookup<'_>, now: Timestamp) -> Decision {
        lookup.evaluate(self.state(lookup).unwrap_or(&BucketState::EMPTY), now)
    }

    /// Makes a granted charge on an existing bucket.
    #[inline]
    pub(super) fn charge(&mut self, lookup: &Lookup<'_>, now: Timestamp) -> Option<Decision> {
        Some(lookup.make(self.state_mut(lookup)?, now))
    }

    /// Makes a granted charge on a new bucket. Adds no bucket if an earlier charge of the decision has added it, or if
    /// the charge has no permits.
    pub(super) fn charge_new(
        &mut self,
        lookup: &mut Lookup<'_>,
        capacity: &BucketCapacity,
        hasher: &DefaultHashBuilder,
        now: Timestamp,
    ) -> Option<Decision> {
        let Location::New { table } = lookup.location else { return None };
        let own = self.tables.get_bucket_mut(table)?;
        let found = own.index(lookup);
        if found.is_some() || lookup.charge.permits == 0 {
            self.release(table, capacity);
            lookup.location = Location::Own { table, index: found? };
            return self.charge(lookup, now);
        }
        let mut state = BucketState::EMPTY;
        let decision = lookup.make(&mut state, now);
        own.update_limiter(&lookup.charge.limiter);
        let index = own.add(lookup, state, hasher);
        lookup.location = Location::Own { table, index };
        self.buckets += 1;
        Some(decision)
    }

    /// Adds a bucket in this state. Returns `false` if it exists, or if there is no capacity.
    pub(super) fn insert(
        &mut self,
        lookup: &mut Lookup<'_>,
        state: &BucketState,
        capacity: &BucketCapacity,
        hasher: &DefaultHashBuilder,
    ) -> bool {
        if self.find(lookup) {
            return false;
        }
        self.add_table(lookup, capacity);
        self.find(lookup);
        self.reserve(lookup, capacity);
        let Location::New { table } = lookup.location else { return false };
        let Some(own) = self.tables.get_bucket_mut(table) else { return false };
        let index = own.add(lookup, state.clone(), hasher);
        lookup.location = Location::Own { table, index };
        self.buckets += 1;
        true
    }

    /// Removes the bucket of a charge. Returns `false` if the bucket does not exist.
    pub(super) fn remove(&mut self, lookup: &mut Lookup<'_>, capacity: &BucketCapacity) -> bool {
        if !self.find(lookup) {
            return false;
        }
        let Location::Own { table, index } = lookup.location else { return false };
        let is_removed = self.tables.get_bucket_mut(table).is_some_and(|table| table.remove(index));
        if is_removed {
            self.buckets -= 1;
            self.release(table, capacity);
        }
        lookup.location = Location::Unknown;
        is_removed
    }

    /// Removes all buckets of the lookup's limit. Returns their number.
    pub(super) fn remove_all(&mut self, limit: &Lookup<'_>, capacity: &BucketCapacity) -> usize {
        let Ok(table) = self.tables.find_entry(limit.name_hash, |table| table.is_of(limit)) else { return 0 };
        let (table, _) = table.remove();
        self.buckets -= table.len();
        if let Some(limit_capacity) = table.limit_capacity() {
            capacity.release(limit_capacity, table.len());
        }
        table.len()
    }

    /// See [`Table::each_in_use`].
    pub(super) fn each_in_use(&self, now: Timestamp, each: &mut impl FnMut(&Limiter, &[Quota], Owner, &BucketState)) {
        self.tables.iter().for_each(|table| table.each_in_use(now, each));
    }

    /// See [`Table::add_quotas`]. The lookup has a bucket.
    pub(super) fn add_quotas(&mut self, lookup: &Lookup<'_>, quotas: &[Quota]) {
        if let Some(table) = self.table(lookup).and_then(|table| self.tables.get_bucket_mut(table)) {
            table.add_quotas(quotas);
        }
    }

    /// Releases the capacity that was reserved for a bucket that is not added.
    pub(super) fn release(&self, table: usize, capacity: &BucketCapacity) {
        if let Some(limit_capacity) = self.limit_capacity(table) {
            capacity.release(limit_capacity, 1);
        }
    }

    /// Returns the capacity of a table's limit; `None` for an OVERALL limit.
    pub(super) fn limit_capacity(&self, table: usize) -> Option<&Arc<LimitCapacity>> {
        self.tables.get_bucket(table)?.limit_capacity()
    }

    /// Updates the bucket of a charge after a refusal.
    pub(super) fn on_refusal(&mut self, lookup: &Lookup<'_>, now: Timestamp) {
        if let Some(state) = self.state_mut(lookup) {
            state.on_refusal(&lookup.charge.limiter.quota, now);
        }
    }

    pub(super) fn give_back(&mut self, lookup: &Lookup<'_>, at: Timestamp, now: Timestamp) {
        if let Some(state) = self.state_mut(lookup) {
            state.give_back(&lookup.charge.limiter.quota, lookup.charge.permits, at, now);
        }
    }

    #[inline]
    fn table(&self, lookup: &Lookup<'_>) -> Option<usize> {
        self.tables.find_bucket_index(lookup.name_hash, |table| table.is_of(lookup))
    }

    #[inline]
    pub(super) fn state(&self, lookup: &Lookup<'_>) -> Option<&BucketState> {
        let Location::Own { table, index } = lookup.location else { return None };
        self.tables.get_bucket(table)?.state(index)
    }

    /// Returns the bucket of a charge, and updates the limiter of its table.
    #[inline]
    fn state_mut(&mut self, lookup: &Lookup<'_>) -> Option<&mut BucketState> {
        let Location::Own { table, index } = lookup.location else { return None };
        let table = self.tables.get_bucket_mut(table)?;
        table.update_limiter(&lookup.charge.limiter);
        table.state_mut(index)
    }
}
