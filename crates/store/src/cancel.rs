//! Cancels reservations whose decision has no receiver.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

use crate::{Store, StoreError};
use tidegate_rules::charge::{Charge, ChargeKind, Outcome};

/// A decision about reservations in Redis. If its caller leaves before the result is known, a task completes the call and
/// cancels the reservations. A cancellation that is sent at once could overtake the call on another connection, and would
/// have no effect.
pub(crate) struct Reserving<T: Send + 'static>(Option<Decision<T>>);

type Decision<T> = Pin<Box<dyn Future<Output = (T, CancelOnDrop)> + Send>>;

/// Cancels the reservations of a decision whose result is unknown, or has no receiver.
pub(crate) struct CancelOnDrop {
    store: Store,
    charges: Vec<Charge>,
}

/// The result of a decision with reservations.
pub(crate) trait Decided {
    /// Returns the decision about the charges.
    fn limits(&self) -> &Result<Outcome, StoreError>;
}

/// Returns `true` if a charge is a reservation.
pub(crate) fn has_reservation(charges: &[Charge]) -> bool {
    charges.iter().any(|charge| matches!(charge.kind, ChargeKind::Reserve(_)))
}

impl<T: Decided + Send + 'static> Reserving<T> {
    /// Decides about charges.
    pub(crate) fn new<F>(store: &Store, charges: &[Charge], decide: impl FnOnce(Store, Vec<Charge>) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (store, charges) = (store.clone(), charges.to_vec());
        let decision = decide(store.clone(), charges.clone());
        Self(Some(Box::pin(async move { (decision.await, CancelOnDrop { store, charges }) })))
    }

    /// Returns the result of the decision, and keeps the reservations that it has made.
    pub(crate) async fn finish(self) -> T {
        let (result, cancel) = self.await;
        cancel.finish(result.limits());
        result
    }
}

impl<T: Send + 'static> Future for Reserving<T> {
    type Output = (T, CancelOnDrop);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(decision) = &mut self.0 else { return Poll::Pending };
        let decided = ready!(decision.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(decided)
    }
}

impl<T: Send + 'static> Drop for Reserving<T> {
    fn drop(&mut self) {
        if let (Some(decision), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { drop(decision.await) });
        }
    }
}

impl CancelOnDrop {
    /// Keeps the reservations, unless it is unknown whether they were made.
    fn finish(mut self, result: &Result<Outcome, StoreError>) {
        if !result.as_ref().is_err_and(StoreError::may_have_charged) {
            self.charges.clear();
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.charges.iter().for_each(|charge| self.store.cancel(charge));
    }
}

impl Decided for Result<Outcome, StoreError> {
    fn limits(&self) -> &Result<Outcome, StoreError> {
        self
    }
}
