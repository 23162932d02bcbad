//! Budgets: limits of costs that are known only after the response. A request reserves the most that it can cost in the
//! decision about all of its limits, and settles the reservation when its cost is known.
//!
//! A settlement can be sent again, unlike other charges: it has an effect only if the reservation is open. So it is repeated
//! until the store replies.

mod passing;

use std::pin::Pin;
use std::slice::from_ref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::{Instant, sleep};

#[cfg(feature = "redis")]
use crate::cancel::Reserving;
use crate::{Backend, Store, StoreError, backend};
#[cfg(feature = "redis")]
use crate::{multi_slot, negative_cache::NegativeCache, redis::Redis};
use tidegate_limit::random::random;
use tidegate_metrics::LimitMetrics;
use tidegate_rules::charge::{Charge, ChargeKind, Granted, Outcome, ReservationId, Turn};

/// The pause before a settlement is repeated, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// How long a settlement is repeated. As long, Redis can correct the charge of a lease that has ended.
const REPEATED_FOR: Duration = Duration::from_secs(600);

/// How long after its first cancellation a reservation is cancelled again: longer than Redis needs to receive a call of a
/// connection that has ended.
const CANCELLED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// An open reservation, or several of one bucket for one request. If it is dropped without a settlement, all of it is charged.
#[derive(Debug)]
pub struct Reservation {
    store: Store,
    first: Charge,
    /// The reservations that were added.
    more: Vec<Charge>,
    /// The grant, if this gateway's share of the limit has made it instead of a reservation in Redis.
    local: Option<Granted>,
    /// The cost; `None` if it is unknown.
    cost: Option<u32>,
    metrics: Option<LimitMetrics>,
}

type ReserveFuture<'s> = Pin<Box<dyn Future<Output = Result<Outcome, StoreError>> + Send + 's>>;

impl Store {
    /// Returns the name of a new reservation.
    #[doc(hidden)]
    pub fn new_reservation(&self) -> ReservationId {
        // From a random number on: a successor has the reservations of its predecessor in addition to its own.
        static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(u64::from_le_bytes(random())));
        let gateway = backend!(self, |_| 0, |redis| redis.store().in_flight().gateway());
        ReservationId { gateway, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Keeps a granted reservation open. In Redis, to be called in a Tokio runtime. `metrics` count its settlement.
    #[doc(hidden)]
    pub fn keep(&self, charge: &Charge, metrics: Option<LimitMetrics>) -> Reservation {
        self.keep_open(charge);
        Reservation { store: self.clone(), first: charge.clone(), more: Vec::new(), local: None, cost: None, metrics }
    }

    /// Keeps a reservation that [`take_locally`](Self::take_locally) has granted: the share of the gateway has charged all of it.
    #[doc(hidden)]
    pub fn keep_locally(&self, granted: Granted, metrics: Option<LimitMetrics>) -> Reservation {
        let first = granted.charge.clone();
        Reservation { store: self.clone(), first, more: Vec::new(), local: Some(granted), cost: None, metrics }
    }

    fn keep_open(&self, charge: &Charge) {
        backend!(self, |_| {}, |redis| redis.store().keep_reservation(charge));
    }

    /// Makes charges with reservations, all or none. A boxed future: the type of the future of [`take`](Self::take) is part of the
    /// type of each request, whose depth is bounded in programs with a layer.
    #[cfg(feature = "redis")]
    pub(crate) fn reserve(&self, charges: &[Charge]) -> ReserveFuture<'static> {
        let decide = |store: Self, charges: Vec<Charge>| async move { store.decide(&charges).await };
        Box::pin(Reserving::new(self, charges, decide).finish())
    }

    async fn decide(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        backend!(self, |memory| memory.take(charges), |redis| multi_slot::take(redis, charges).await)
    }

    /// Charges the cost of a reservation, and ends the reservation. Does nothing for other charges.
    pub(crate) fn settle(&self, reservation: &Charge, permits: u32) {
        self.send_settlement(reservation, permits, Sent::Once(None));
    }

    /// Cancels a reservation that may have been made. If its call had no reply, the call can arrive after the first
    /// cancellation.
    pub(crate) fn cancel(&self, reservation: &Charge) {
        self.send_settlement(reservation, 0, Sent::Twice);
    }

    fn send_settlement(&self, reservation: &Charge, permits: u32, sent: Sent) {
        let Some(settled) = reservation.settled(permits) else { return };
        let store = self.clone();
        let report = move |outcome: Option<Outcome>, settled: &Charge| {
            if let (Sent::Once(Some(metrics)), Some(outcome)) = (&sent, outcome) {
                let key = settled.client.as_ref().and_then(|client| store.key_of(client));
                passing::report(metrics, settled, &outcome, key);
            }
            matches!(sent, Sent::Twice)
        };
        backend!(self, |memory| _ = report(memory.take(from_ref(&settled)).ok(), &settled), |redis| {
            let redis = Arc::clone(redis);
            let settle = async move {
                if report(settle_in_redis(&redis, &settled).await, &settled) {
                    sleep(CANCELLED_AGAIN_AFTER).await;
                    settle_in_redis(&redis, &settled).await;
                }
            };
            // Without a runtime, the process ends: Redis charges the reservation.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(settle);
            }
        });
    }

    /// Charges the cost of a request that the share of this gateway has granted.
    fn settle_locally(&self, granted: Granted, cost: u32) {
        backend!(self, |_| {}, |redis| {
            let (fallback, reserved) = (redis.store().fallback(), granted.charge.permits);
            match cost.checked_sub(reserved) {
                Some(0) => {}
                Some(more) => fallback.charge_later(&Charge { permits: more, ..granted.charge }),
                None => {
                    let charge = Charge { permits: reserved - cost, ..granted.charge };
                    fallback.give_back(&[Granted { charge, ..granted }]);
                }
            }
        });
    }
}

/// How a settlement is sent.
enum Sent {
    /// Once, until the store replies. The metrics count a share of the budget that it passes.
    Once(Option<LimitMetrics>),
    /// Again after a while.
    Twice,
}

/// Repeats a settlement until Redis replies. Returns `None` without a reply.
#[cfg(feature = "redis")]
async fn settle_in_redis(redis: &NegativeCache<Redis>, settled: &Charge) -> Option<Outcome> {
    let (deadline, [mut pause, max_pause]) = (Instant::now() + REPEATED_FOR, PAUSE);
    loop {
        match multi_slot::take(redis, from_ref(settled)).await {
            Ok(outcome) => return Some(outcome),
            Err(error) if Instant::now() + pause > deadline => {
                tracing::warn!(%error, "failed to settle a reservation");
                return None;
            }
            Err(_) => sleep(pause).await,
        }
        pause = (pause * 2).min(max_pause);
    }
}

impl Reservation {
    /// The reserved permits.
    pub fn permits(&self) -> u32 {
        self.more.iter().fold(self.first.permits, |sum, charge| sum.saturating_add(charge.permits))
    }

    /// Reserves more permits. Returns `false` if the budget does not have them, or if the share of this gateway has granted the
    /// reservation.
    ///
    /// # Errors
    /// The store did not decide; see [`StoreError`].
    pub async fn extend(&mut self, permits: u32) -> Result<bool, StoreError> {
        if self.local.is_some() {
            return Ok(false);
        }
        // With its own name: a caller that leaves cancels only this reservation.
        let kind = ChargeKind::Reserve(self.store.new_reservation());
        let more = Charge { permits, kind, turn: Turn::Any, ..self.first.clone() };
        let granted = self.store.take(from_ref(&more)).await?.granted();
        if granted {
            self.store.keep_open(&more);
            self.more.push(more);
        }
        Ok(granted)
    }

    /// Charges the cost, and ends the reservation. Permits above those that were reserved can be debt.
    pub fn settle(mut self, permits: u32) {
        self.cost = Some(permits);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let cost = self.cost.unwrap_or_else(|| self.permits());
        if let Some(metrics) = &self.metrics {
            metrics.cost_settled(cost, cost.saturating_sub(self.permits()));
            if self.cost.is_none() {
                metrics.usage_missing();
            }
        }
        if let Some(granted) = self.local.take() {
            return self.store.settle_locally(granted, cost);
        }
        for charge in std::iter::once(&self.first).chain(&self.more) {
            backend!(self.store, |_| {}, |redis| redis.store().drop_reservation(charge));
        }
        // The first settlement has the whole cost, so that the permits of the others stay reserved until then.
        self.store.send_settlement(&self.first, cost, Sent::Once(self.metrics.take()));
        self.more.iter().for_each(|charge| self.store.settle(charge, 0));
    }
}
