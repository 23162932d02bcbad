//! Permits that reach their caller, or are given back.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock::Timestamp;
use crate::limit::{Decision, Granted, Outcome};
use crate::store::{Named, Store, StoreError};

/// A store's answer on its way. Dropped before it is claimed, it gives back what was taken: its caller has left.
struct Unclaimed {
    store: Store,
    of: Named,
    /// Permits taken; none of a refused request.
    taken: u32,
    at: Timestamp,
    decision: Decision,
}

/// Takes permits, or says how long to wait. If this future is dropped, none are taken.
pub(super) async fn take(store: &Store, of: &Named, permits: u32) -> Result<Decision, StoreError> {
    if let Store::Memory(_) = store {
        // It decides before it could be dropped.
        return only(store.acquire(of, permits).await?.decisions);
    }
    let (store, of) = (store.clone(), of.clone());
    let (sender, answer) = oneshot::channel();
    // A call that was sent may run: somebody has to hear its answer.
    tokio::spawn(async move {
        let outcome = store.acquire(&of, permits).await;
        _ = sender.send(outcome.and_then(|outcome| Unclaimed::new(store, of, permits, outcome)));
    });
    Ok(answer.await.map_err(|_| StoreError::Broken)??.claim())
}

fn only(decisions: Vec<Decision>) -> Result<Decision, StoreError> {
    decisions.into_iter().next().ok_or(StoreError::Shape)
}

impl Unclaimed {
    fn new(store: Store, of: Named, permits: u32, outcome: Outcome) -> Result<Self, StoreError> {
        let at = outcome.now;
        let decision = only(outcome.decisions)?;
        Ok(Self { store, of, taken: if decision.granted { permits } else { 0 }, at, decision })
    }

    fn claim(mut self) -> Decision {
        self.taken = 0;
        self.decision
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let (1.., Ok(runtime)) = (self.taken, Handle::try_current()) {
            let (store, charge, at) = (self.store.clone(), self.of.charge(self.taken), self.at);
            runtime.spawn(async move {
                if let Err(error) = store.give_back(&[Granted { charge, at, overflow: false }]).await {
                    tracing::debug!(%error, "permits were not given back, and return by themselves");
                }
            });
        }
    }
}
