//! The open reservations of budgets in this process.
//!
//! They have a separate lock, which is taken after the locks of the shards: only decisions about budgets need it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::Memory;
use super::lookup::{Location, Lookup};
use super::owner::Owner;
use tidegate_rules::charge::{ChargeKind, Limiter};

/// The open reservations of all buckets.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// By the name of the limit and the owner of the bucket. Buckets without open reservations are left out.
    buckets: HashMap<(String, Owner), OfBucket>,
    /// The reservations that a predecessor has handed over and still settles, by number.
    pub(super) inherited: HashMap<u64, Inherited>,
    /// The reservations that a successor has, and their costs so far. `None` without a successor.
    pub(super) handed_over: Option<HandedOver>,
}

/// A reservation of a predecessor.
#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) limiter: Arc<Limiter>,
    pub(super) owner: Owner,
}

/// Reservations that a successor has.
#[derive(Debug, Default)]
pub(super) struct HandedOver {
    pub(super) numbers: HashSet<u64>,
    /// The numbers and the costs of those that were settled since.
    pub(super) settled: Vec<(u64, u32)>,
}

/// The open reservations of a bucket.
#[derive(Debug, Default)]
struct OfBucket {
    permits: u64,
    by_number: HashMap<u64, u32>,
}

impl Memory {
    /// Locks the reservations, if a charge is of a budget, and adds the reservations of each bucket to its lookup.
    pub(super) fn lock_reservations(&self, lookups: &mut [Lookup<'_>]) -> Option<MutexGuard<'_, Reservations>> {
        let is_budget = |lookup: &Lookup<'_>| lookup.charge.limiter.budget.is_some();
        if !lookups.iter().any(is_budget) {
            return None;
        }
        let reservations = self.reservations.lock();
        for lookup in lookups.iter_mut().filter(|lookup| is_budget(lookup)) {
            let mut permits = reservations.buckets.get(&key(lookup)).map_or(0, |of_bucket| of_bucket.permits);
            if let ChargeKind::Settle(id) = lookup.charge.kind {
                let ends = reservations.permits_of(lookup, id.number);
                lookup.is_ended = ends.is_none();
                permits = permits.saturating_sub(ends.map_or(0, u64::from));
            }
            lookup.reserved = u32::try_from(permits).unwrap_or(u32::MAX);
        }
        Some(reservations)
    }
}

impl Reservations {
    /// Opens and ends reservations after a decision.
    pub(super) fn apply(&mut self, lookups: &mut [Lookup<'_>], granted: bool) {
        for lookup in lookups {
            match lookup.charge.kind {
                ChargeKind::Reserve(id) if granted && lookup.decision.granted => {
                    let permits = lookup.charge.permits;
                    self.add(key(lookup), id.number, permits);
                    lookup.decision.remaining = lookup.decision.remaining.saturating_sub(permits);
                }
                ChargeKind::Settle(id) => {
                    if !lookup.is_ended {
                        self.record_settlement(id.number, lookup.charge.permits);
                    }
                    self.end(lookup, id.number);
                }
                _ => {}
            }
        }
    }

    /// Returns the bucket of an open reservation: the client's own, or the one that was its overflow bucket.
    fn bucket_of(&self, lookup: &Lookup<'_>, number: u64) -> Option<(String, Owner)> {
        let keys = [lookup.owner, Owner::ANY].map(|owner| (lookup.charge.limiter.name.clone(), owner));
        let has_number =
            |key: &_| self.buckets.get(key).is_some_and(|bucket: &OfBucket| bucket.by_number.contains_key(&number));
        keys.into_iter().find(has_number)
    }

    /// Returns the permits of an open reservation.
    fn permits_of(&self, lookup: &Lookup<'_>, number: u64) -> Option<u32> {
        self.buckets.get(&self.bucket_of(lookup, number)?)?.by_number.get(&number).copied()
    }

    fn end(&mut self, lookup: &Lookup<'_>, number: u64) {
        if let Some(key) = self.bucket_of(lookup, number) {
            self.remove(&key, number);
        }
    }

    /// Adds a reservation of a bucket.
    pub(super) fn add(&mut self, key: (String, Owner), number: u64, permits: u32) {
        let of_bucket = self.buckets.entry(key).or_default();
        *of_bucket.by_number.entry(number).or_default() += permits;
        of_bucket.permits += u64::from(permits);
    }

    /// Removes a reservation of a bucket. Returns its permits.
    pub(super) fn remove(&mut self, key: &(String, Owner), number: u64) -> Option<u32> {
        let of_bucket = self.buckets.get_mut(key)?;
        let permits = of_bucket.by_number.remove(&number)?;
        of_bucket.permits -= u64::from(permits);
        if of_bucket.by_number.is_empty() {
            self.buckets.remove(key);
        }
        Some(permits)
    }

    /// Records the cost of a reservation for the successor that has it.
    pub(super) fn record_settlement(&mut self, number: u64, cost: u32) {
        if let Some(handed_over) = &mut self.handed_over
            && handed_over.numbers.remove(&number)
        {
            handed_over.settled.push((number, cost));
        }
    }

    /// Calls `each` with the name of the limit, the owner, the number and the permits of each reservation, except
    /// in overflow buckets.
    pub(super) fn for_each(&self, mut each: impl FnMut(&str, Owner, u64, u32)) {
        for ((name, owner), of_bucket) in self.buckets.iter().filter(|((_, owner), _)| *owner != Owner::ANY) {
            of_bucket.by_number.iter().for_each(|(number, permits)| each(name, *owner, *number, *permits));
        }
    }
}

/// Clients that share the overflow bucket of a limit share its reservations.
fn key(lookup: &Lookup<'_>) -> (String, Owner) {
    let owner = if matches!(lookup.location, Location::Overflow { .. }) { Owner::ANY } else { lookup.owner };
    (lookup.charge.limiter.name.clone(), owner)
}
