//! Removes buckets for operators, as if they had never been used.

use std::sync::Arc;

use super::Memory;
use super::lookup::Lookup;
use tidegate_limit::Mode;
use tidegate_rules::charge::{Charge, Limiter};

impl Memory {
    /// Removes the bucket of a charge. Returns `false` if the bucket does not exist. The overflow bucket stays: other
    /// clients share it.
    pub(crate) fn reset(&self, charge: &Charge) -> bool {
        let mut lookup = self.lookup(charge);
        self.lock_shards[lookup.lock_shard()].lock().remove(&mut lookup, &self.capacity)
    }

    /// Removes all buckets of a limit, with the grants of its overflow bucket. Returns the number of removed buckets.
    /// Locks one shard after the other.
    pub(crate) fn reset_all(&self, limiter: &Arc<Limiter>) -> usize {
        let charge = Charge::new(Arc::clone(limiter), None, 0);
        if limiter.mode == Mode::Overall {
            return self.reset(&charge).into();
        }
        let table = Lookup::of_limit(&charge, &self.hasher);
        let removed =
            self.lock_shards.iter().map(|lock_shard| lock_shard.lock().remove_all(&table, &self.capacity)).sum();
        if let Some(limit_capacity) = self.capacity.get(limiter) {
            self.overflow.lock().empty(&limit_capacity);
        }
        removed
    }
}
