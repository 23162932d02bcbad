//! Reserves more output for a stream, of all budgets or of none.

use std::pin::Pin;
use std::sync::Arc;

use super::Metering;
use super::reservations::{OpenReservation, Slices};
use tidegate_rules::charge::{Charge, Outcome};
use tidegate_rules::limits::rule::OnStoreFailure;
use tidegate_store::{Reservation, Store, StoreError};

/// Resolves to `false` if a budget does not have the permits.
pub(super) type Extension = Pin<Box<dyn Future<Output = bool> + Send>>;

/// More output of one budget.
struct Ask {
    /// The position of the reservation.
    position: usize,
    /// The output that the reservation covers then, in tokens.
    covered: u64,
    charge: Charge,
    on_store_failure: OnStoreFailure,
    is_shadow: bool,
}

impl Metering {
    /// The output that all budgets cover, in tokens; `None` if they cover all of it.
    pub(super) fn covered(&self) -> Option<u64> {
        let open = self.open.lock();
        let slices = open.iter().flatten().filter_map(|open| open.slices.as_ref());
        slices.filter(|slices| !slices.is_shadow).filter_map(Slices::limit).min()
    }

    /// The smallest slice of all budgets, in tokens; `None` if the whole output is reserved.
    pub(super) fn slice(&self) -> Option<u64> {
        let open = self.open.lock();
        open.iter().flatten().filter_map(|open| Some(open.slices.as_ref()?.slice)).min()
    }

    /// Reserves output up to this many tokens.
    pub(super) fn extend(self: &Arc<Self>, tokens: u64) -> Extension {
        let (asks, free): (Vec<_>, Vec<_>) = self.asks(tokens).into_iter().partition(|ask| ask.charge.permits > 0);
        free.iter().for_each(|ask| self.cover(ask, |_| {}));
        let metering = Arc::clone(self);
        Box::pin(async move {
            let Some(store) = metering.store.as_ref().filter(|_| !asks.is_empty()) else { return true };
            let charges: Vec<_> = asks.iter().map(|ask| ask.charge.clone()).collect();
            match store.take(&charges).await {
                Ok(outcome) => {
                    let is_granted = outcome.granted();
                    if is_granted {
                        metering.add(asks, &outcome, store);
                    }
                    is_granted
                }
                Err(error) => metering.extend_without_store(asks, store, &error),
            }
        })
    }

    /// Returns the permits that the budgets lack for this many tokens of output.
    fn asks(&self, tokens: u64) -> Vec<Ask> {
        let open = self.open.lock();
        let ask = |(position, open): (usize, &OpenReservation)| {
            let slices = open.slices.as_ref()?;
            let (covered, is_shadow) = (tokens.min(slices.bound), slices.is_shadow);
            let bound = |output| open.weights.bound(slices.input, output);
            let permits = u32::try_from(bound(covered).saturating_sub(bound(slices.covered))).unwrap_or(u32::MAX);
            let charge = open.reservation.charge_for_more(permits);
            let on_store_failure = slices.on_store_failure;
            (covered > slices.covered).then_some(Ask { position, covered, charge, on_store_failure, is_shadow })
        };
        open.iter().flatten().enumerate().filter_map(ask).collect()
    }

    /// Adds the reservations that the store has made. A shadow never ends a stream.
    fn add(&self, asks: Vec<Ask>, outcome: &Outcome, store: &Store) {
        for (ask, decision) in asks.into_iter().zip(&outcome.decisions) {
            let is_reserved = decision.granted && !decision.is_unknown;
            let charge = ask.charge.clone();
            self.cover(&ask, |reservation| match reservation {
                Some(reservation) if is_reserved => reservation.add(charge),
                // The request has been settled.
                None if is_reserved => store.keep(&charge, None).settle(0),
                _ => {}
            });
        }
    }

    /// Decides by the `on_store_failure` of each limit, as the admission does.
    fn extend_without_store(&self, asks: Vec<Ask>, store: &Store, error: &StoreError) -> bool {
        tracing::debug!(%error, "failed to reserve more output of a stream");
        if asks.iter().any(|ask| ask.on_store_failure == OnStoreFailure::Deny && !ask.is_shadow) {
            return false;
        }
        let (local, allowed): (Vec<_>, Vec<_>) =
            asks.into_iter().partition(|ask| ask.on_store_failure == OnStoreFailure::Local);
        let charges: Vec<_> = local.iter().map(|ask| ask.charge.clone()).collect();
        match store.take_locally(&charges) {
            Ok(outcome) if !outcome.granted() => return false,
            Ok(outcome) => {
                for (ask, decision) in local.iter().zip(&outcome.decisions) {
                    let granted = decision.grant(&ask.charge, outcome.now);
                    self.cover(ask, |reservation| {
                        reservation.into_iter().zip(granted).for_each(|(own, granted)| own.add_local(granted));
                    });
                }
            }
            Err(_) => local.iter().for_each(|ask| self.cover(ask, |_| {})),
        }
        allowed.iter().for_each(|ask| self.cover(ask, |_| {}));
        true
    }

    /// Records that a reservation covers more output, after `add` has added permits to it.
    fn cover(&self, ask: &Ask, add: impl FnOnce(Option<&mut Reservation>)) {
        let mut open = self.open.lock();
        let own = open.as_mut().and_then(|open| open.get_mut(ask.position));
        let Some(own) = own else { return add(None) };
        add(Some(&mut own.reservation));
        if let Some(slices) = &mut own.slices {
            slices.covered = ask.covered;
        }
    }
}
