//! Cancels reservations whose decision has no receiver.

use crate::{Store, StoreError};
use tidegate_rules::charge::{Charge, ChargeKind, Outcome};

/// Cancels the reservations of a decision whose result is unknown, or has no receiver.
pub(crate) struct CancelOnDrop<'c> {
    store: &'c Store,
    charges: &'c [Charge],
}

impl<'c> CancelOnDrop<'c> {
    /// Returns `None` if no charge is a reservation.
    pub(crate) fn if_reserving(store: &'c Store, charges: &'c [Charge]) -> Option<Self> {
        let has_reservation = charges.iter().any(|charge| matches!(charge.kind, ChargeKind::Reserve(_)));
        has_reservation.then_some(Self { store, charges })
    }

    /// Keeps the reservations, unless it is unknown whether they were made.
    pub(crate) fn finish(mut self, result: &Result<Outcome, StoreError>) {
        if !result.as_ref().is_err_and(StoreError::may_have_charged) {
            self.charges = &[];
        }
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        for charge in self.charges {
            self.store.settle(charge, 0);
        }
    }
}
