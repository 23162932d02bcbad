//! Takes the slot of a request together with its permits: all or nothing.

use std::pin::pin;
use std::sync::Arc;

use super::in_flight::{Full, RouteSlots, SlotRequest, TakenWithSlot};
use super::negative_cache::{NegativeCache, Remote as _};
use super::redis::{NewSlot, Redis};
use super::{Backend, Store, StoreError, multi_slot};
use crate::limit::{Charge, Outcome, all_live_granted};

impl Store {
    /// Returns the slots with this name.
    pub(crate) fn slots(&self, name: &Arc<str>) -> Arc<RouteSlots> {
        match &self.0 {
            Backend::Memory(memory) => memory.in_flight().slots(name),
            Backend::Redis(redis) => redis.store().in_flight().slots(name),
        }
    }

    /// Makes all charges and takes a slot, or does nothing.
    pub(crate) async fn take_with_slot(&self, charges: &[Charge], request: SlotRequest<'_>) -> TakenWithSlot {
        match &self.0 {
            Backend::Memory(memory) => request.hold_with(charges, |charges| memory.take(charges)),
            Backend::Redis(redis) => match redis.store().new_slot(request) {
                Some(slot) if redis.store().is_one_call(charges, &slot) => take_at_once(redis, charges, slot).await,
                Some(slot) => take_in_turn(redis, charges, slot).await,
                None => {
                    let limits = multi_slot::take(redis, charges).await;
                    let is_refused = limits.as_ref().is_ok_and(|outcome| !outcome.granted());
                    let slot = if is_refused { Err(Full::default()) } else { request.hold_if(|bound| bound, None) };
                    TakenWithSlot { limits, slot }
                }
            },
        }
    }
}

/// Decides with one call.
async fn take_at_once(redis: &NegativeCache<Redis>, charges: &[Charge], slot: NewSlot<'_>) -> TakenWithSlot {
    let deadline = redis.store().deadline();
    let taken = redis.take_and_cache(charges, pin!(redis.store().take_with_lease(charges, &slot, deadline))).await;
    match taken {
        Err(error) if error.is_migrating() => take_in_turn(redis, charges, slot).await,
        taken => finish(redis, charges, taken, slot),
    }
}

/// Decides about the permits, then about the slot: their hash slots differ, or a limit is in shards. In the meantime, other
/// requests may be refused for permits that are given back. A request without permits takes no slot.
async fn take_in_turn(redis: &NegativeCache<Redis>, charges: &[Charge], slot: NewSlot<'_>) -> TakenWithSlot {
    let limits = multi_slot::take(redis, charges).await;
    if limits.as_ref().is_ok_and(|outcome| !outcome.granted()) {
        return TakenWithSlot { limits, slot: Err(Full::default()) };
    }
    let taken = redis.store().take_with_lease(&[], &slot, redis.store().deadline()).await;
    let taken = finish(redis, &[], taken, slot).slot;
    if let (Ok(outcome), Err(_)) = (&limits, &taken) {
        let (granted, cache) = (outcome.granted_charges(charges.to_vec()), redis.clone());
        // A client that leaves does not interrupt the refund. If it fails, the permits return with time.
        _ = tokio::spawn(async move { multi_slot::give_back(&cache, &granted).await }).await;
    }
    TakenWithSlot { limits, slot: taken }
}

/// Converts the reply about charges and a lease. Without a reply, the slot is one of this gateway's share.
fn finish(
    redis: &NegativeCache<Redis>,
    charges: &[Charge],
    taken: Result<Outcome, StoreError>,
    slot: NewSlot<'_>,
) -> TakenWithSlot {
    let mut outcome = match taken {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!(%error, "store does not reply, slot is taken from the share of this gateway");
            return TakenWithSlot { limits: Err(error), slot: slot.finish_locally(redis.store()) };
        }
    };
    let are_granted = all_live_granted(charges, &outcome.decisions);
    let slot = slot.finish(&outcome, charges.len());
    outcome.decisions.truncate(charges.len());
    let limits = Ok(Outcome::with_granted(outcome.now, outcome.decisions, are_granted));
    TakenWithSlot { limits, slot: slot.map_err(|full| if are_granted { full } else { Full::default() }) }
}
