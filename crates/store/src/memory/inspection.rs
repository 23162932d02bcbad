//! Reads buckets for operators, without any charge.

use std::sync::Arc;

use super::Memory;
use super::capacity::LimitCapacity;
use super::lock_shard::LockShard;
use super::lookup::Lookup;
use crate::Inspection;
use crate::StoreError;
use tidegate_limit::BucketState;
use tidegate_rules::charge::{Charge, Decision};

impl Memory {
    /// Returns the state of the bucket that decides a charge now.
    ///
    /// # Errors
    /// [`StoreError::NotInitialised`] for an adopted limiter, whose quota only Redis has.
    pub(crate) fn inspect(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        let quota = &charge.limiter.quota;
        if quota.is_adopted() {
            return Err(StoreError::NotInitialised);
        }
        let mut lookup = self.lookup(charge);
        let lock_shard = self.lock_shards[lookup.lock_shard()].lock();
        let is_found = lock_shard.find(&mut lookup);
        let overflow = if is_found { None } else { self.overflow_of(&lock_shard, &lookup) };
        let overflow = overflow.and_then(|limit_capacity| self.overflow.lock().state(&limit_capacity));
        let (now, is_overflow) = (self.clock.now(), overflow.is_some());
        let state = overflow.unwrap_or_else(|| lock_shard.state(&lookup).cloned().unwrap_or(BucketState::EMPTY));
        let _reservations = self.lock_reservations(std::slice::from_mut(&mut lookup));
        let decision = Decision { overflow: is_overflow, ..lookup.evaluate(&state, now) };
        let expires_at = Some(state.full_at(quota)).filter(|full_at| *full_at > now);
        let reserved = charge.limiter.budget.map(|_| lookup.reserved.into());
        Ok(Inspection { reserved, ..Inspection::new(now, &decision, state.used(quota, now), expires_at) })
    }

    /// Returns the capacity of a limit whose new clients share the overflow bucket.
    fn overflow_of(&self, lock_shard: &LockShard, lookup: &Lookup<'_>) -> Option<Arc<LimitCapacity>> {
        let limit_capacity = lock_shard.limit_capacity_for(lookup, &self.capacity)?;
        (!self.capacity.has_capacity(&limit_capacity, lookup.charge.shadow)).then_some(limit_capacity)
    }
}
