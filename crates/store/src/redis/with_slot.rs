//! Takes the slot of a request together with its permits, in one call if all hash slots are equal.

use std::pin::pin;

use super::Redis;
use super::in_flight::NewSlot;
use crate::in_flight::{Full, SlotRequest, TakenWithSlot};
use crate::negative_cache::{NegativeCache, Remote as _};
use crate::{StoreError, multi_slot};
use tidegate_rules::charge::{Charge, Outcome};

impl NegativeCache<Redis> {
    /// Makes all charges and takes a slot, or does nothing.
    pub async fn take_with_slot(&self, charges: &[Charge], request: SlotRequest<'_>) -> TakenWithSlot {
        match self.store().new_slot(request) {
            Some(new_slot) if self.store().is_one_call(charges, &new_slot) => {
                take_at_once(self, charges, new_slot).await
            }
            Some(new_slot) => take_in_turn(self, charges, new_slot).await,
            None => {
                let limits = multi_slot::take(self, charges).await;
                let is_refused = limits.as_ref().is_ok_and(|outcome| !outcome.granted());
                let in_flight_slot =
                    if is_refused { Err(Full::default()) } else { request.hold_if(|bound| bound, None) };
                TakenWithSlot { limits, in_flight_slot }
            }
        }
    }
}

/// Decides with one call.
async fn take_at_once(redis: &NegativeCache<Redis>, charges: &[Charge], new_slot: NewSlot<'_>) -> TakenWithSlot {
    let deadline = redis.store().deadline();
    let taken = redis.take_and_cache(charges, pin!(redis.store().take_with_lease(charges, &new_slot, deadline))).await;
    match taken {
        Err(error) if error.is_migrating() => take_in_turn(redis, charges, new_slot).await,
        taken => finish(redis, charges, taken, new_slot),
    }
}

/// Decides about the permits, then about the slot: their hash slots differ, or a limit is in shards. In the meantime,
/// other requests may be refused for permits that are given back. A request without permits takes no slot.
async fn take_in_turn(redis: &NegativeCache<Redis>, charges: &[Charge], new_slot: NewSlot<'_>) -> TakenWithSlot {
    let limits = multi_slot::take(redis, charges).await;
    if limits.as_ref().is_ok_and(|outcome| !outcome.granted()) {
        return TakenWithSlot { limits, in_flight_slot: Err(Full::default()) };
    }
    let taken = redis.store().take_with_lease(&[], &new_slot, redis.store().deadline()).await;
    let taken = finish(redis, &[], taken, new_slot).in_flight_slot;
    if let (Ok(outcome), Err(_)) = (&limits, &taken) {
        let (granted, cache) = (outcome.granted_charges(charges), redis.clone());
        // A client that leaves does not interrupt the refund. If it fails, the permits return with time.
        _ = tokio::spawn(async move { multi_slot::give_back(&cache, &granted).await }).await;
    }
    TakenWithSlot { limits, in_flight_slot: taken }
}

/// Converts the reply about charges and a lease. Without a reply, the slot is one of this gateway's share.
fn finish(
    redis: &NegativeCache<Redis>,
    charges: &[Charge],
    taken: Result<Outcome, StoreError>,
    new_slot: NewSlot<'_>,
) -> TakenWithSlot {
    let mut outcome = match taken {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!(%error, "store does not reply, slot is taken from the share of this gateway");
            return TakenWithSlot { limits: Err(error), in_flight_slot: new_slot.finish_locally(redis.store()) };
        }
    };
    let in_flight_slot = new_slot.finish(&outcome, charges.len());
    outcome.decisions.truncate(charges.len());
    let limits = Outcome::new(outcome.now, outcome.decisions, charges);
    let in_flight_slot = in_flight_slot.map_err(|full| if limits.granted() { full } else { Full::default() });
    TakenWithSlot { limits: Ok(limits), in_flight_slot }
}
