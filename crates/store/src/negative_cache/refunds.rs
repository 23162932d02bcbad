//! Refunds of permits by bucket: a refund makes earlier refusals of its bucket obsolete.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::key::Key;

/// The maximum number of buckets for which a shard records refunds. One more refund counts as a refund of all its
/// buckets.
const MAX_BUCKETS: usize = 56;

/// The refunds of the buckets in a shard of the cache, numbered in order.
#[derive(Debug, Default)]
pub(super) struct Refunds {
    /// The number of the latest refund of each bucket.
    latest: HashTable<(Key, u64)>,
    /// The number of the latest refund of all buckets of the shard.
    of_all: u64,
}

impl Refunds {
    /// Records refund `number` of the bucket `key`. `hash` is the hash of the key; `hash_of` hashes any key.
    pub(super) fn add(&mut self, key: Key, hash: u64, number: u64, hash_of: impl Fn(&Key) -> u64) {
        let is_known = self.latest.find(hash, |(other, _)| *other == key).is_some();
        if !is_known && self.latest.len() >= MAX_BUCKETS {
            return self.add_for_all(number);
        }
        match self.latest.entry(hash, |(other, _)| *other == key, |(other, _)| hash_of(other)) {
            Entry::Occupied(mut latest) => latest.get_mut().1 = latest.get().1.max(number),
            Entry::Vacant(vacant) => _ = vacant.insert((key, number)),
        }
    }

    /// Records refund `number` of all buckets.
    pub(super) fn add_for_all(&mut self, number: u64) {
        self.latest.clear();
        self.of_all = self.of_all.max(number);
    }

    /// Returns `true` if the bucket had a refund after refund `number`.
    pub(super) fn is_newer(&self, key: &Key, hash: u64, number: u64) -> bool {
        self.of_all > number || self.latest.find(hash, |(other, latest)| other == key && *latest > number).is_some()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.latest.allocation_size()
    }
}
