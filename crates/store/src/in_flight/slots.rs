//! Takes the slot of a request together with its permits: all or nothing.

use std::sync::Arc;

#[cfg(feature = "redis")]
use crate::cancel::{Decided, Reserving, has_reservation};
use crate::in_flight::{RouteSlots, SlotRequest, TakenWithSlot};
use crate::{Backend, Store, backend};
#[cfg(feature = "redis")]
use crate::{NegativeCache, Redis, StoreError};
use tidegate_rules::charge::Charge;
#[cfg(feature = "redis")]
use tidegate_rules::charge::Outcome;

impl Store {
    /// Returns the in-flight slots of the route with this name. All callers with equal names share them.
    #[doc(hidden)]
    pub fn slots(&self, name: &Arc<str>) -> Arc<RouteSlots> {
        backend!(self, |memory| memory.in_flight().slots(name), |redis| redis.store().in_flight().slots(name))
    }

    /// Makes all charges and takes a slot, or does nothing.
    #[doc(hidden)]
    pub async fn take_with_slot(&self, charges: &[Charge], request: SlotRequest<'_>) -> TakenWithSlot {
        backend!(self, |memory| request.hold_with(charges, |charges| memory.take(charges)), |redis| {
            match has_reservation(charges) {
                true => reserve_with_slot(self, Arc::clone(redis), charges, request).finish().await,
                false => redis.take_with_slot(charges, request).await,
            }
        })
    }
}

#[cfg(feature = "redis")]
impl Decided for TakenWithSlot {
    fn limits(&self) -> &Result<Outcome, StoreError> {
        &self.limits
    }
}

/// Like [`Store::take_with_slot`], for charges with reservations.
#[cfg(feature = "redis")]
fn reserve_with_slot(
    store: &Store,
    redis: Arc<NegativeCache<Redis>>,
    charges: &[Charge],
    request: SlotRequest<'_>,
) -> Reserving<TakenWithSlot> {
    let SlotRequest { concurrency, slots, client, waits_since } = request;
    let (concurrency, slots, client) = (concurrency.clone(), Arc::clone(slots), client.cloned());
    Reserving::new(store, charges, |_, charges| async move {
        let request = SlotRequest { concurrency: &concurrency, slots: &slots, client: client.as_ref(), waits_since };
        redis.take_with_slot(&charges, request).await
    })
}
