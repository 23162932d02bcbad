//! Makes operations cancel-safe: permits reach their caller or are given back.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Decision, Granted, Outcome};
use tidegate_store::{LimiterRef, Store, StoreError};

/// Granted permits that no caller has received. Gives them back when dropped, since the caller has left.
struct UnclaimedPermits {
    store: Store,
    limiter: LimiterRef,
    /// The number of granted permits; 0 if the request was refused.
    taken: u32,
    at: Timestamp,
    decision: Decision,
}

/// Takes permits, or returns how long to wait. If this future is dropped, no permits are taken.
pub(super) async fn take(store: &Store, limiter: &LimiterRef, permits: u32) -> Result<Decision, StoreError> {
    if !store.is_redis() {
        // Decides without waiting, so the future cannot be dropped in between.
        return only_decision(store.acquire(limiter, permits).await?.decisions);
    }
    let (store, limiter) = (store.clone(), limiter.clone());
    let (sender, outcome) = oneshot::channel();
    // A call that was sent may run, so a task must receive its outcome.
    tokio::spawn(async move {
        let outcome = store.acquire(&limiter, permits).await;
        _ = sender.send(outcome.and_then(|outcome| UnclaimedPermits::new(store, limiter, permits, outcome)));
    });
    Ok(outcome.await.map_err(|_| StoreError::Broken)??.claim())
}

fn only_decision(decisions: Vec<Decision>) -> Result<Decision, StoreError> {
    decisions.into_iter().next().ok_or(StoreError::UnexpectedReply)
}

impl UnclaimedPermits {
    fn new(store: Store, limiter: LimiterRef, permits: u32, outcome: Outcome) -> Result<Self, StoreError> {
        let at = outcome.now;
        let decision = only_decision(outcome.decisions)?;
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
                    tracing::debug!(%error, "permits were not given back, and return with time");
                }
            });
        }
    }
}
