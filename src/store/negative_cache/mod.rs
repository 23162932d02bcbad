//! A negative cache before a store that takes a while to ask: what a bucket has refused it refuses until its wait is over, so
//! nobody need be asked.
//!
//! Nothing but the passing of time, which is known, and what somebody gives back can set permits free. What is given back
//! here is forgotten here at once; what other gateways give back is found within a second, after which one request asks
//! again while the others are still refused. What a limiter shared with others refuses is remembered for 100 ms at most, and
//! in the library not at all.
//!
//! The waits are told by the store's clock. When it goes back, the store makes up for that as soon as it is asked, and permits
//! return one interval later; so while requests are refused from memory the clock is looked at, and everything is forgotten as soon as it
//! has gone back.

mod clock_watch;
mod entries;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use self::clock_watch::ClockWatch;
use self::entries::{Entries, Refused};
use super::{Known, StoreError};
use crate::clock::Timestamp;
use crate::limit::{Charge, Granted, Outcome};
use crate::metrics::Metrics;

/// A store that decides elsewhere.
pub trait Remote: Send + Sync + 'static {
    /// Makes all charges or none.
    fn take(&self, charges: &[Charge]) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Gives back what was granted; as if the clock showed `now`, if that is given.
    fn give_back(
        &self,
        granted: &[Granted],
        now: Option<Timestamp>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What its clock shows.
    fn time(&self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;
}

/// A store, and what it is known to refuse.
#[derive(Debug)]
pub struct NegativeCache<S> {
    store: Arc<S>,
    known: Arc<KnownRefusals>,
    metrics: Arc<Metrics>,
}

/// What all workers of a gateway know of their store.
#[derive(Debug, Default)]
struct KnownRefusals {
    entries: Entries,
    clock: ClockWatch,
}

// === impl NegativeCache ===

impl<S> NegativeCache<S> {
    pub(crate) fn new(store: S, metrics: Arc<Metrics>) -> Self {
        Self { store: Arc::new(store), known: Arc::default(), metrics }
    }

    /// The same knowledge of another way to the same store.
    pub(crate) fn beside(&self, store: S) -> Self {
        Self { store: Arc::new(store), known: Arc::clone(&self.known), metrics: Arc::clone(&self.metrics) }
    }

    /// What is asked, and remembers nothing.
    pub(crate) fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Remote> NegativeCache<S> {
    /// What is known to refuse these charges; nothing if the store has to be asked.
    pub(crate) fn known_refusal(&self, charges: &[Charge]) -> Option<Known> {
        let known = self.known.entries.known(charges)?;
        self.metrics.store_known();
        if self.known.clock.is_due() {
            self.look_at_the_clock();
        }
        Some(known)
    }

    /// Makes all charges or none, and remembers what was refused.
    pub(crate) async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let (age, asked) = (self.known.entries.age(), Instant::now());
        let outcome = self.store.take(charges).await;
        self.known.entries.answered(charges, asked, outcome.as_ref().ok());
        if let Ok(outcome) = &outcome {
            let heard = Instant::now();
            self.known.shows(outcome.now, asked, heard);
            let decisions = charges.iter().zip(&outcome.decisions);
            for (charge, decision) in decisions.filter(|(charge, decision)| !charge.shadow && !decision.granted) {
                let refused = Refused { said: outcome.now, asked, heard, permits: charge.permits, decision };
                self.known.entries.remember(charge, &refused, age);
            }
        }
        outcome
    }

    /// Gives back what was granted. Before that is known to have happened, and after, nobody is refused for it from memory.
    pub(crate) async fn give_back(&self, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
        let charges = || granted.iter().map(|one| &one.charge);
        self.known.entries.forget(charges());
        let given_back = self.store.give_back(granted, now).await;
        self.known.entries.forget(charges());
        given_back
    }

    fn look_at_the_clock(&self) {
        let (store, known) = (Arc::clone(&self.store), Arc::clone(&self.known));
        tokio::spawn(async move {
            let asked = Instant::now();
            if let Ok(shown) = store.time().await {
                known.shows(shown, asked, Instant::now());
            }
        });
    }
}

// === impl KnownRefusals ===

impl KnownRefusals {
    /// The store's clock has shown this at some moment between these two.
    fn shows(&self, shown: Timestamp, asked: Instant, heard: Instant) {
        if self.clock.went_back(shown, asked, heard) {
            self.entries.forget_all();
        }
    }
}
