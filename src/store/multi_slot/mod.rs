//! Charges that no one call can decide, since their keys are on several nodes: they are made group by group, and given back if
//! a later group refuses. In between, others may be refused because of permits that are about to be given back.

mod migration;
mod sequence;
mod shards;

use std::cmp::Reverse;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use self::sequence::{ChargeTarget, Group, charge_in_sequence, give_back_until};
use super::StoreError;
use super::negative_cache::{NegativeCache, Remote};
use crate::clock::Timestamp;
use crate::limit::{Charge, Granted, Outcome};

/// Makes all charges or none.
///
/// # Errors
/// The store could not decide; what had been charged was given back, as far as it could be.
pub(super) async fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    now: Option<Timestamp>,
) -> Result<Outcome, StoreError> {
    let deadline = cache.store().deadline();
    let groups = groups(charges, |charge| cache.store().slot(charge));
    if groups.len() < 2 {
        return shards::take(cache, charges, now, deadline).await;
    }
    // Boxed, so that those who need one call do without the memory that this needs.
    charge_in_sequence(charges, &groups, &StoreTarget { cache, now, deadline }).boxed().await
}

/// Takes from a store.
struct StoreTarget<'s, S> {
    cache: &'s NegativeCache<S>,
    now: Option<Timestamp>,
    deadline: Instant,
}

impl<S: Remote> ChargeTarget for StoreTarget<'_, S> {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        shards::take(self.cache, charges, self.now, self.deadline).await
    }

    async fn give_back(&self, granted: Vec<Granted>) {
        let (cache, now) = (self.cache.clone(), self.now);
        give_back_until(self.deadline, async move { _ = give_back(&cache, &granted, now).await }).await;
    }
}

/// Gives back what was granted.
///
/// # Errors
/// Not all of it could be; the rest returns by itself.
pub(super) async fn give_back<S: Remote>(
    cache: &NegativeCache<S>,
    granted: &[Granted],
    now: Option<Timestamp>,
) -> Result<(), StoreError> {
    let charges: Vec<Charge> = granted.iter().map(|one| one.charge.clone()).collect();
    let groups = groups(&charges, |charge| cache.store().slot(charge));
    if groups.len() < 2 {
        return cache.give_back(granted, now).await;
    }
    let group = |group: Group| group.into_iter().map(|position| granted[position].clone()).collect();
    let groups: Vec<Vec<Granted>> = groups.into_iter().map(group).collect();
    // All at once, so that a node that does not answer takes no time from the others.
    let given_back = join_all(groups.iter().map(|group| cache.give_back(group, now))).await;
    given_back.into_iter().collect()
}

/// The groups of these charges: those of one slot, and each on a limit in shards alone, since it tries several slots. Those
/// that can refuse come first.
fn groups(charges: &[Charge], slot: impl Fn(&Charge) -> Option<u16>) -> Vec<Group> {
    let mut groups: Vec<(Option<u16>, Group)> = Vec::new();
    for (position, charge) in charges.iter().enumerate() {
        // Where there are no slots, one call decides all.
        let Some(slot) = slot(charge) else { return Vec::new() };
        let own = charge.limiter.shards().is_empty().then_some(slot);
        match groups.iter_mut().find(|(of, _)| own.is_some() && *of == own) {
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
