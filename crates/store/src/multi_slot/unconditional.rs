//! Charges that cannot be refused. A limit in shards takes unused permits of any shard first. The rest is the debt of
//! one shard, so that no shard grants while there is debt that its permits could have paid.

use std::slice::from_ref;

use tokio::time::Instant;

use super::{migration, shards};
use crate::StoreError;
use crate::negative_cache::{NegativeCache, Remote};
use tidegate_rules::charge::{Charge, ChargeKind, Decision, Turn};

/// A charge that the store did not confirm.
pub(crate) struct FailedCharge {
    pub(crate) error: StoreError,
    /// The permits that were not charged before the error.
    pub(crate) permits: u32,
}

/// Charges a bucket in any case. Returns its new state.
///
/// # Errors
/// The store did not reply.
pub(crate) async fn charge_unconditionally<S: Remote>(
    cache: &NegativeCache<S>,
    charge: &Charge,
) -> Result<Decision, FailedCharge> {
    let (deadline, mut permits) = (cache.store().deadline(), charge.permits);
    if !charge.limiter.shards().is_empty() {
        let taken = take_unused(cache, charge, &mut permits, deadline).await;
        if let Some(decision) = taken.map_err(|error| FailedCharge { error, permits })?.filter(|_| permits == 0) {
            return Ok(decision);
        }
    }
    let unconditional = Charge { kind: ChargeKind::Unconditional, turn: Turn::Any, permits, ..charge.clone() };
    let outcome = if unconditional.limiter.shards().is_empty() {
        migration::take(cache, from_ref(&unconditional), deadline).await
    } else {
        shards::take(cache, from_ref(&unconditional), deadline).await
    };
    let decision = outcome.map(|outcome| outcome.decisions.into_iter().next());
    let decision = decision.and_then(|decision| decision.ok_or(StoreError::UnexpectedReply));
    decision.map_err(|error| FailedCharge { error, permits })
}

/// Takes as many of the permits as the shards have, and subtracts them. Returns the last decision.
async fn take_unused<S: Remote>(
    cache: &NegativeCache<S>,
    charge: &Charge,
    permits: &mut u32,
    deadline: Instant,
) -> Result<Option<Decision>, StoreError> {
    let (mut requested, mut last) = (*permits, None);
    while requested > 0 {
        let take = Charge { kind: ChargeKind::Take, turn: Turn::Any, permits: requested, ..charge.clone() };
        let outcome = shards::take(cache, from_ref(&take), deadline).await?;
        let Some(decision) = outcome.decisions.into_iter().next() else { break };
        if decision.granted {
            *permits -= requested;
            requested = *permits;
        } else {
            requested = match decision.remaining {
                0 => requested / 2, // other shards may have some
                remaining => remaining.min(requested - 1),
            };
        }
        last = Some(decision);
    }
    Ok(last)
}
