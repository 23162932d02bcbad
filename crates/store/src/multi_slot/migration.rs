//! Requests to a hash slot that migrates from one node to another. Each node has some of its keys, and both nodes
//! reject a call that needs several keys. So the buckets of a request are decided one by one, each on its own node.

use std::slice::from_ref;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::sequence::{ChargeTarget, Group, charge_in_sequence, give_back_until};
use crate::StoreError;
use crate::negative_cache::{NegativeCache, Remote};
use tidegate_rules::charge::{Charge, Granted, Outcome};

/// Makes all charges or none; in a single call unless their hash slot is migrating.
///
/// # Errors
/// The store could not decide. Charges that were already made have been given back, if their nodes were reachable.
pub(super) async fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    deadline: Instant,
) -> Result<Outcome, StoreError> {
    match cache.take(charges, deadline).await {
        Err(error) if error.is_migrating() => {
            let groups: Vec<Group> = (0..charges.len()).map(|position| vec![position]).collect();
            charge_in_sequence(charges, &groups, &PerBucketTarget { cache, deadline }).boxed().await
        }
        decided => decided,
    }
}

/// Decides each charge of a request separately.
struct PerBucketTarget<'s, S> {
    cache: &'s NegativeCache<S>,
    deadline: Instant,
}

impl<S: Remote> ChargeTarget for PerBucketTarget<'_, S> {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let [charge] = charges else { return Err(StoreError::UnexpectedReply) };
        self.cache.take_one(charge, self.deadline).await
    }

    async fn give_back(&self, granted: Vec<Granted>) {
        let cache = self.cache.clone();
        give_back_until(self.deadline, async move {
            join_all(granted.iter().map(|grant| cache.give_back(from_ref(grant)))).await;
        })
        .await;
    }
}
