//! Permits that reach their caller, or are given back.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock::Timestamp;
use crate::limit::{Decision, Granted, Outcome};
use crate::store::{LimiterRef, Store, StoreError};

/// A store's outcome on its way. Dropped before it is claimed, it gives back what was taken: its caller has left.
struct UnclaimedPermits {
    store: Store,
    limiter: LimiterRef,
    /// Permits taken; none of a refused request.
    taken: u32,
    at: Timestamp,
    decision: Decision,
}

/// Takes permits, or says how long to wait. If this future is dropped, none are taken.
pub(super) async fn take(store: &Store, limiter: &LimiterRef, permits: u32) -> Result<Decision, StoreError> {
    if !store.is_redis() {
        // It decides before it could be dropped.
        return first(store.acquire(limiter, permits).await?.decisions);
    }
    let (store, limiter) = (store.clone(), limiter.clone());
    let (sender, outcome) = oneshot::channel();
    // A call that was sent may run: somebody has to hear its outcome.
    tokio::spawn(async move {
        let outcome = store.acquire(&limiter, permits).await;
        _ = sender.send(outcome.and_then(|outcome| UnclaimedPermits::new(store, limiter, permits, outcome)));
    });
    Ok(outcome.await.map_err(|_| StoreError::Broken)??.claim())
}

fn first(decisions: Vec<Decision>) -> Result<Decision, StoreError> {
    decisions.into_iter().next().ok_or(StoreError::UnexpectedReply)
}

impl UnclaimedPermits {
    fn new(store: Store, limiter: LimiterRef, permits: u32, outcome: Outcome) -> Result<Self, StoreError> {
        let at = outcome.now;
        let decision = first(outcome.decisions)?;
        Ok(Self { store, limiter, taken: if decision.granted { permits } else { 0 }, at, decision })
    }

    fn claim(mut self) -> Decision {
        self.taken = 0;
        self.decision
    }
}

impl Drop for UnclaimedPermits {
    fn drop(&mut self) {
        if let (1.., Ok(runtime)) = (self.taken, Handle::try_current()) {
            let (store, charge, at) = (self.store.clone(), self.limiter.charge(self.taken), self.at);
            runtime.spawn(async move {
                if let Err(error) = store.give_back(&[Granted { charge, at, overflow: false }]).await {
                    tracing::debug!(%error, "permits were not given back, and return by themselves");
                }
            });
        }
    }
}
