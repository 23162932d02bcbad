//! The open reservations of a process that hands over to another one, and their settlements.
//!
//! The successor counts them as its own until the end of the predecessor, which then sends the costs of those that it has
//! settled. The others were lost with the predecessor.

use std::sync::Arc;

use super::Memory;
use super::lookup::Lookup;
use super::owner::Owner;
use super::reservations::{HandedOver, Inherited};
use tidegate_limit::{BucketState, Mode};
use tidegate_rules::charge::{Charge, ChargeKind, Limiter, OnLost};

/// For the predecessor.
impl Memory {
    /// Calls `each` with the name of the limit, the owner, the number and the permits of each open reservation. Its
    /// settlement is recorded if `each` returns `true`: then the successor has the reservation.
    pub(crate) fn hand_over_reservations(&self, mut each: impl FnMut(&str, [u8; 16], u64, u32) -> bool) {
        let (mut reservations, mut handed_over) = (self.reservations.lock(), HandedOver::default());
        reservations.for_each(|name, owner, number, permits| {
            if each(name, owner.bytes(), number, permits) {
                handed_over.numbers.insert(number);
            }
        });
        reservations.handed_over = Some(handed_over);
    }

    /// Returns the numbers and the costs of the reservations that were settled since they were handed over.
    pub(crate) fn settled_since_handover(&self) -> Vec<(u64, u32)> {
        self.reservations.lock().handed_over.take().map(|handed_over| handed_over.settled).unwrap_or_default()
    }
}

/// For the successor.
impl Memory {
    /// Opens a reservation of the predecessor. Returns `false` if the limit has another mode, or is no budget.
    pub(crate) fn inherit(&self, limiter: &Arc<Limiter>, owner: [u8; 16], number: u64, permits: u32) -> bool {
        let owner = Owner::of_bytes(owner);
        if owner.is_overall() != (limiter.mode == Mode::Overall) || limiter.budget.is_none() {
            return false;
        }
        let mut reservations = self.reservations.lock();
        let is_new = !reservations.inherited.contains_key(&number);
        if is_new {
            reservations.add((limiter.name.clone(), owner), number, permits);
            reservations.inherited.insert(number, Inherited { limiter: Arc::clone(limiter), owner });
        }
        is_new
    }

    /// Charges the costs of inherited reservations that the predecessor has settled, and the effect of a loss for all others.
    pub(crate) fn settle_inherited(&self, costs: impl Iterator<Item = (u64, u32)>) {
        costs.for_each(|(number, cost)| self.settle_one(number, Some(cost)));
        let lost: Vec<u64> = self.reservations.lock().inherited.keys().copied().collect();
        lost.into_iter().for_each(|number| self.settle_one(number, None));
    }

    /// Ends an inherited reservation. Without a cost, it was lost.
    fn settle_one(&self, number: u64, cost: Option<u32>) {
        let Some(Inherited { limiter, owner }) = self.reservations.lock().inherited.remove(&number) else { return };
        let key = (limiter.name.clone(), owner);
        let mut charge = Charge { kind: ChargeKind::Unconditional, ..Charge::new(limiter, None, 0) };
        let lock_shard = Lookup::with_owner(&charge, owner, &self.hasher).lock_shard();
        // In the order of decisions: the bucket first. A decision sees both changes.
        let (mut lock_shard, mut reservations) = (self.lock_shards[lock_shard].lock(), self.reservations.lock());
        let Some(permits) = reservations.remove(&key, number) else { return };
        let lost = if charge.limiter.budget == Some(OnLost::Refund) { 0 } else { permits };
        charge.permits = cost.unwrap_or(lost);
        reservations.record_settlement(number, charge.permits);
        let mut lookup = Lookup::with_owner(&charge, owner, &self.hasher);
        if charge.permits > 0
            && (lock_shard.find(&mut lookup)
                || lock_shard.insert(&mut lookup, &BucketState::EMPTY, &self.capacity, &self.hasher))
        {
            _ = lock_shard.charge(&lookup, self.clock.now());
        }
    }
}
