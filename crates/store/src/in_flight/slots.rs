//! Takes the slot of a request together with its permits: all or nothing.

use std::sync::Arc;

use crate::cancel::CancelOnDrop;
use crate::in_flight::{RouteSlots, SlotRequest, TakenWithSlot};
use crate::{Backend, Store, backend};
use tidegate_rules::charge::Charge;

impl Store {
    /// Returns the in-flight slots of the route with this name. All callers with equal names share them.
    #[doc(hidden)]
    pub fn slots(&self, name: &Arc<str>) -> Arc<RouteSlots> {
        backend!(self, |memory| memory.in_flight().slots(name), |redis| redis.store().in_flight().slots(name))
    }

    /// Makes all charges and takes a slot, or does nothing.
    #[doc(hidden)]
    pub async fn take_with_slot(&self, charges: &[Charge], request: SlotRequest<'_>) -> TakenWithSlot {
        let cancel = CancelOnDrop::if_reserving(self, charges);
        let taken = backend!(self, |memory| request.hold_with(charges, |charges| memory.take(charges)), |redis| {
            redis.take_with_slot(charges, request).await
        });
        if let Some(cancel) = cancel {
            cancel.finish(&taken.limits);
        }
        taken
    }
}
