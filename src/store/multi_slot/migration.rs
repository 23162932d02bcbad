//! Requests about a slot that is on its way from one node to another: some of its keys are here and some are there, and a call
//! about several of them is refused by both. So the buckets of a request are then decided one by one, each where it is.

use std::slice::from_ref;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::sequence::{ChargeTarget, Group, charge_in_sequence, give_back_until};
use crate::clock::Timestamp;
use crate::limit::{Charge, Granted, Outcome};
use crate::store::StoreError;
use crate::store::negative_cache::{NegativeCache, Remote};

/// Makes all charges or none, in one call if their slot stays where it is.
///
/// # Errors
/// The store could not decide; what had been charged was given back, as far as it could be.
pub(super) async fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    now: Option<Timestamp>,
    deadline: Instant,
) -> Result<Outcome, StoreError> {
    match cache.take(charges, now, deadline).await {
        Err(error) if error.is_migrating() => {
            let groups: Vec<Group> = (0..charges.len()).map(|position| vec![position]).collect();
            // Boxed, so that all others do without the memory that this needs.
            charge_in_sequence(charges, &groups, &PerBucketTarget { cache, now, deadline }).boxed().await
        }
        decided => decided,
    }
}

/// Has each charge of a request decided by itself.
struct PerBucketTarget<'s, S> {
    cache: &'s NegativeCache<S>,
    now: Option<Timestamp>,
    deadline: Instant,
}

impl<S: Remote> ChargeTarget for PerBucketTarget<'_, S> {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let [charge] = charges else { return Err(StoreError::Shape) };
        self.cache.take_one(charge, self.now, self.deadline).await
    }

    async fn give_back(&self, granted: Vec<Granted>) {
        let (cache, now) = (self.cache.clone(), self.now);
        give_back_until(self.deadline, async move {
            join_all(granted.iter().map(|one| cache.give_back(from_ref(one), now))).await;
        })
        .await;
    }
}
