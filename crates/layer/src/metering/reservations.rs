//! The reservations of one request, with the output that they cover.

use super::MeteredRequest;
use tidegate_rules::limits::budget::UsageCost;
use tidegate_rules::limits::rule::OnStoreFailure;
use tidegate_rules::rules::LimitCharge;
use tidegate_store::Reservation;
use tidegate_usage::{Usage, Weights};

/// The open reservation of one limit.
#[derive(Debug)]
pub(super) struct OpenReservation {
    pub(super) reservation: Reservation,
    pub(super) weights: Weights,
    /// `None` if the whole output of the request is reserved.
    pub(super) slices: Option<Slices>,
}

/// The output that a reservation covers, in tokens.
#[derive(Debug)]
pub(super) struct Slices {
    pub(super) slice: u64,
    pub(super) covered: u64,
    /// The most output of the request.
    pub(super) bound: u64,
    /// The most input of the request.
    pub(super) input: u64,
    pub(super) on_store_failure: OnStoreFailure,
    pub(super) is_shadow: bool,
}

impl OpenReservation {
    /// Adds the reservation of a limit.
    pub(super) fn new(
        reservation: Reservation,
        cost: &UsageCost,
        entry: &LimitCharge<'_>,
        request: &MeteredRequest<'_>,
    ) -> Self {
        let slices = request.stream.and_then(|request| {
            let slice = cost.first_slice(request)?;
            let (input, bound) = (cost.input_bound(request).ok()?, cost.output_bound(request));
            let (on_store_failure, is_shadow) = (entry.limit.on_store_failure, entry.is_shadow());
            Some(Slices { slice, covered: slice, bound, input, on_store_failure, is_shadow })
        });
        // A request whose model has no price was rejected.
        let weights = cost.weights(request.model).unwrap_or_default();
        Self { reservation, weights, slices }
    }

    /// Charges the output so far of a stream that the gateway ends. `input` is the input, if it is known.
    pub(super) fn settle_ended(self, input: Option<&Usage>, output: u64) {
        let reserved = self.reservation.permits();
        let cost = match (input, &self.slices) {
            (Some(input), _) => self.weights.cost(&Usage { output, ..*input }),
            (None, Some(slices)) => self.weights.bound(slices.input, output),
            (None, None) => reserved.into(),
        };
        self.reservation.settle_ended(u32::try_from(cost).unwrap_or(u32::MAX));
    }
}

impl Slices {
    /// The output that the reservation covers; `None` if it covers all of it.
    pub(super) fn limit(&self) -> Option<u64> {
        (self.covered < self.bound).then_some(self.covered)
    }
}
