//! Charges that span several hash slots, so that no single call can decide them. They are made group by group, and
//! given back if a later group refuses. In the meantime, other requests may be refused for permits that are given back
//! later.

mod migration;
mod sequence;
mod shards;
mod unconditional;

use std::cmp::Reverse;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use self::sequence::{ChargeTarget, Group, charge_in_sequence, give_back_until};
pub(super) use self::unconditional::{FailedCharge, charge_unconditionally};
use super::StoreError;
use super::negative_cache::{NegativeCache, Remote};
use tidegate_rules::charge::{Charge, Granted, Outcome};

/// Makes all charges or none, before the deadline of the store.
///
/// # Errors
/// As for [`take_until`].
pub(super) fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
) -> impl Future<Output = Result<Outcome, StoreError>> {
    take_until(cache, charges, cache.store().deadline())
}

/// Makes all charges or none, before a deadline that is not later than the deadline of the store.
///
/// # Errors
/// The store could not decide. Charges that were already made have been given back, if their nodes were reachable.
#[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
pub(super) fn take_until<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    deadline: Instant,
) -> impl Future<Output = Result<Outcome, StoreError>> {
    async move {
        let groups = groups(charges, |charge| cache.store().hash_slot(charge));
        if groups.len() < 2 {
            return shards::take(cache, charges, deadline).await;
        }
        charge_in_sequence(charges, &groups, &StoreTarget { cache, deadline }).boxed().await
    }
}

/// Charges a store.
struct StoreTarget<'s, S> {
    cache: &'s NegativeCache<S>,
    deadline: Instant,
}

impl<S: Remote> ChargeTarget for StoreTarget<'_, S> {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        shards::take(self.cache, charges, self.deadline).await
    }

    async fn give_back(&self, granted: Vec<Granted>) {
        let cache = self.cache.clone();
        give_back_until(self.deadline, async move { _ = give_back(&cache, &granted).await }).await;
    }
}

/// Gives back granted charges.
///
/// # Errors
/// A charge could not be given back; its permits return when their time has passed.
pub(super) async fn give_back<S: Remote>(cache: &NegativeCache<S>, granted: &[Granted]) -> Result<(), StoreError> {
    let charges: Vec<Charge> = granted.iter().map(|grant| grant.charge.clone()).collect();
    let groups = groups(&charges, |charge| cache.store().hash_slot(charge));
    if groups.len() < 2 {
        return cache.give_back(granted).await;
    }
    let group = |group: Group| group.into_iter().map(|position| granted[position].clone()).collect();
    let groups: Vec<Vec<Granted>> = groups.into_iter().map(group).collect();
    // All groups at once, so that a node that does not respond does not delay the others.
    let given_back = join_all(groups.iter().map(|group| cache.give_back(group))).await;
    given_back.into_iter().collect()
}

/// Divides charges into groups: charges in one hash slot share a group, and a charge on a limit in shards has its own
/// group, since it may try several hash slots. Groups with live charges come first. Returns no groups if there are no
/// hash slots.
fn groups(charges: &[Charge], hash_slot: impl Fn(&Charge) -> Option<u16>) -> Vec<Group> {
    let mut groups: Vec<(Option<u16>, Group)> = Vec::new();
    for (position, charge) in charges.iter().enumerate() {
        // Without hash slots, a single call decides all charges.
        let Some(hash_slot) = hash_slot(charge) else { return Vec::new() };
        let own = charge.limiter.shards().is_empty().then_some(hash_slot);
        match groups.iter_mut().find(|(other, _)| own.is_some() && *other == own) {
            Some((_, group)) => group.push(position),
            None => groups.push((own, vec![position])),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    groups.sort_by_key(|group| Reverse(group.iter().any(|position| !charges[*position].shadow)));
    groups
}

#[cfg(test)]
mod tests;
