//! A negative cache in front of a remote store. After a bucket has refused a request, the cache refuses further
//! requests until the wait has ended, without a call to the store.
//!
//! Permits become available with time, which is predictable, or when they are given back. A refund by this gateway
//! removes the entry immediately. Refunds by other gateways are noticed within a second: once a second, one request
//! asks the store while the others are still refused. Refusals of a shared limiter are cached for at most 100 ms,
//! refusals of the library's limiters never.
//!
//! Waits depend on the store's clock. If that clock is set back, the store corrects its buckets at the next call, and
//! permits return one interval later. So the clock is watched while requests are refused from the cache, and the cache
//! is cleared if it was set back.

mod clock_watch;
mod entries;
mod key;
mod refunds;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::time::Instant;

use self::clock_watch::ClockWatch;
use self::entries::{Entries, Refused};
use super::StoreError;
use tidegate_limit::clock::{Timestamp, read_poll_time};
use tidegate_metrics::Metrics;
use tidegate_rules::charge::{Charge, ChargeKind, Granted, Outcome};

/// A store outside of this process.
pub trait Remote: Send + Sync + 'static {
    /// Returns the hash slot of a charge's bucket, if there are hash slots. A call concerns one hash slot.
    fn hash_slot(&self, charge: &Charge) -> Option<u16>;

    /// Returns the number of the clock that applies to a charge.
    fn clock(&self, charge: &Charge) -> usize;

    /// Returns `true` if the clock is a manual one, on which decisions cannot be cached.
    fn has_manual_clock(&self) -> bool {
        false
    }

    /// Returns the deadline of a decision that starts now.
    fn deadline(&self) -> Instant;

    /// Returns the number of calls that this worker has sent, from a random start. A large call counts as several.
    fn call_count(&self) -> u64;

    /// Makes all charges or none before the deadline.
    fn take(&self, charges: &[Charge], deadline: Instant) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Makes one charge, whose bucket may be on either node while its hash slot migrates.
    fn take_one(&self, charge: &Charge, deadline: Instant) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Gives back granted charges.
    fn give_back(&self, granted: &[Granted]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the time of the clock that applies to this charge.
    fn time(&self, charge: &Charge) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;
}

/// A store with a cache of its refusals.
#[derive(Debug)]
pub struct NegativeCache<S> {
    store: Arc<S>,
    refusals: Arc<RefusalCache>,
    metrics: Arc<Metrics>,
}

/// The cache, shared by all workers of a gateway.
#[derive(Debug, Default)]
struct RefusalCache {
    entries: Entries,
    /// By the number of the clock.
    clocks: RwLock<Vec<Arc<ClockWatch>>>,
}

// === impl NegativeCache ===

impl<S> NegativeCache<S> {
    /// Returns the metrics in which the cache counts its decisions.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Puts a cache in front of a store.
    pub fn new(store: S, metrics: Arc<Metrics>) -> Self {
        Self { store: Arc::new(store), refusals: Arc::default(), metrics }
    }

    /// Returns the same cache in front of another connection to the same store.
    pub fn with_store(&self, store: S) -> Self {
        Self { store: Arc::new(store), refusals: Arc::clone(&self.refusals), metrics: Arc::clone(&self.metrics) }
    }

    /// Returns the store behind the cache.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Remote> NegativeCache<S> {
    /// Returns the deadline of a decision that starts now.
    pub fn deadline(&self) -> Instant {
        self.store.deadline()
    }

    /// Returns the cached refusals of these charges; `None` if the store has to be asked.
    pub fn known_refusal(&self, charges: &[Charge]) -> Option<Outcome> {
        if self.refusals.entries.is_empty() {
            return None;
        }
        let now = read_poll_time();
        let cached = self.refusals.entries.find(charges, now)?;
        self.metrics.known_refusal();
        let refused = cached.pairs(charges).find(|(_, decision)| !decision.is_unknown);
        if let Some((charge, _)) = refused
            && self.refusals.is_reading_due(self.store.clock(charge), now)
        {
            self.read_clock(charge.clone());
        }
        Some(cached)
    }

    /// Returns `true` if this charge has a cached refusal.
    pub fn refuses(&self, charge: &Charge) -> bool {
        self.refusals.entries.refuses(charge)
    }

    /// Makes all charges or none, and caches refusals.
    pub async fn take(&self, charges: &[Charge], deadline: Instant) -> Result<Outcome, StoreError> {
        self.take_and_cache(charges, pin!(self.store.take(charges, deadline))).await
    }

    /// Makes one charge, whose hash slot may be migrating.
    pub async fn take_one(&self, charge: &Charge, deadline: Instant) -> Result<Outcome, StoreError> {
        self.take_and_cache(std::slice::from_ref(charge), pin!(self.store.take_one(charge, deadline))).await
    }

    /// Asks the store, and caches its refusals unless its clock is a manual one. Takes the future by reference, because
    /// an async function stores its arguments twice. The outcome may have further decisions after those about `charges`.
    pub(super) async fn take_and_cache(
        &self,
        charges: &[Charge],
        ask: Pin<&mut (impl Future<Output = Result<Outcome, StoreError>> + Send)>,
    ) -> Result<Outcome, StoreError> {
        if self.store.has_manual_clock() {
            return ask.await;
        }
        let (generation, sent_at) = (self.refusals.entries.generation(), read_poll_time());
        let outcome = ask.await;
        match &outcome {
            Ok(outcome) => {
                let granted = outcome.pairs(charges).filter(|(_, decision)| decision.granted);
                self.refusals.entries.remove_granted(granted.map(|(charge, _)| charge), sent_at);
            }
            Err(_) => self.refusals.entries.remove_granted(charges.iter(), sent_at), // may have been granted
        }
        // Debt makes waits longer, and the end of a reservation makes them shorter, so earlier refusals are obsolete.
        let is_unconditional =
            |charge: &&Charge| matches!(charge.kind, ChargeKind::Unconditional | ChargeKind::Settle(_));
        let mut unconditional = charges.iter().filter(is_unconditional).peekable();
        if unconditional.peek().is_some() {
            self.refusals.entries.remove_refunded(unconditional);
        }
        if let (Ok(outcome), Some(first)) = (&outcome, charges.first()) {
            let received_at = read_poll_time();
            self.refusals.record_clock(self.store.clock(first), outcome.now, sent_at, received_at);
            let pairs = outcome.pairs(charges);
            for (charge, decision) in pairs.filter(|(charge, decision)| !charge.shadow && !decision.granted) {
                let (decided_at, permits, patience) = (outcome.now, charge.permits, charge.patience());
                let refused = Refused { decided_at, sent_at, received_at, permits, patience, decision };
                self.refusals.entries.insert(charge, &refused, generation);
            }
        }
        outcome
    }

    /// Gives back granted charges. Removes the entries before and after the call, since a concurrent request may be
    /// refused by either state of the bucket.
    pub async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        let charges = || granted.iter().map(|grant| &grant.charge);
        self.refusals.entries.remove_refunded(charges());
        let given_back = self.store.give_back(granted).await;
        self.refusals.entries.remove_refunded(charges());
        given_back
    }

    /// Forgets all refusals, so that the store is asked about each charge again.
    pub fn forget_all(&self) {
        self.refusals.entries.clear();
    }

    fn read_clock(&self, charge: Charge) {
        let (store, refusals) = (Arc::clone(&self.store), Arc::clone(&self.refusals));
        tokio::spawn(async move {
            let sent_at = Instant::now();
            if let Ok(store_time) = store.time(&charge).await {
                refusals.record_clock(store.clock(&charge), store_time, sent_at, Instant::now());
            }
        });
    }
}

impl<S> Clone for NegativeCache<S> {
    fn clone(&self) -> Self {
        let (store, refusals, metrics) =
            (Arc::clone(&self.store), Arc::clone(&self.refusals), Arc::clone(&self.metrics));
        Self { store, refusals, metrics }
    }
}

// === impl RefusalCache ===

impl RefusalCache {
    /// Records a reading of a clock, taken between `sent_at` and `received_at`. Clears the cache if the clock was set
    /// back.
    fn record_clock(&self, clock: usize, store_time: Timestamp, sent_at: Instant, received_at: Instant) {
        if self.clock(clock).went_back(store_time, sent_at, received_at) {
            self.entries.clear();
        }
    }

    /// Returns `true` if a reading of this clock is due. Only one caller gets `true`.
    fn is_reading_due(&self, clock: usize, now: Instant) -> bool {
        let is_due = self.clocks.read().get(clock).map(|clock| clock.is_due(now));
        is_due.unwrap_or_else(|| self.clock(clock).is_due(now))
    }

    fn clock(&self, number: usize) -> Arc<ClockWatch> {
        if let Some(clock) = self.clocks.read().get(number) {
            return Arc::clone(clock);
        }
        let mut clocks = self.clocks.write();
        let len = clocks.len().max(number + 1);
        clocks.resize_with(len, Arc::default);
        Arc::clone(&clocks[number])
    }
}
