//! Budgets: limits of costs that are known only after the response. A request reserves the most that it can cost in the
//! decision about all of its limits, and settles the reservation when its cost is known.
//!
//! A settlement can be sent again, unlike other charges: it has an effect only if the reservation is open. So it is repeated
//! until the store replies.

mod passing;
mod reservation;

use std::pin::Pin;
use std::slice::from_ref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

#[cfg(feature = "redis")]
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

pub use self::reservation::Reservation;
#[cfg(feature = "redis")]
use crate::cancel::Reserving;
use crate::{Backend, Store, StoreError, backend};
#[cfg(feature = "redis")]
use crate::{multi_slot, negative_cache::NegativeCache, redis::Redis};
use tidegate_limit::random::random;
use tidegate_metrics::LimitMetrics;
use tidegate_rules::charge::{Charge, Granted, Outcome, ReservationId};

/// The pause before a settlement is repeated, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// How long a settlement is repeated. As long, Redis can correct the charge of a lease that has ended.
const REPEATED_FOR: Duration = Duration::from_secs(600);

/// How long after its first cancellation a reservation is cancelled again: longer than Redis needs to receive a call of a
/// connection that has ended.
const CANCELLED_AGAIN_AFTER: Duration = Duration::from_secs(5);

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
        Reservation::new(self.clone(), charge, metrics)
    }

    /// Keeps a reservation that [`take_locally`](Self::take_locally) has granted: the share of the gateway has charged all of it.
    #[doc(hidden)]
    pub fn keep_locally(&self, granted: Granted, metrics: Option<LimitMetrics>) -> Reservation {
        Reservation::of_share(self.clone(), granted, metrics)
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

    /// Cancels a reservation that may have been made. If its call had no reply, the call can arrive after the first
    /// cancellation.
    pub(crate) fn cancel(&self, reservation: &Charge) {
        self.send_settlements(reservation, 0, &[], Sent::Twice);
    }

    /// Charges the cost of a request, and ends its reservations of one bucket. Does nothing for other charges. The first settlement
    /// has the whole cost: the permits of the other reservations stay reserved until Redis has charged it.
    fn send_settlements(&self, first: &Charge, permits: u32, more: &[Charge], sent: Sent) {
        let Some(settled) = first.settled(permits) else { return };
        let more: Vec<_> = more.iter().filter_map(|charge| charge.settled(0)).collect();
        let store = self.clone();
        let report = move |outcome: Option<Outcome>, settled: &Charge| {
            if let (Sent::Once(Some(metrics)), Some(outcome)) = (&sent, outcome) {
                let key = settled.client.as_ref().and_then(|client| store.key_of(client));
                passing::report(metrics, settled, &outcome, key);
            }
            matches!(sent, Sent::Twice)
        };
        backend!(
            self,
            |memory| {
                report(memory.take(from_ref(&settled)).ok(), &settled);
                more.iter().for_each(|settled| _ = memory.take(from_ref(settled)));
            },
            |redis| {
                let redis = Arc::clone(redis);
                let settle = async move {
                    if report(settle_in_redis(&redis, &settled).await, &settled) {
                        sleep(CANCELLED_AGAIN_AFTER).await;
                        settle_in_redis(&redis, &settled).await;
                    }
                    join_all(more.iter().map(|settled| settle_in_redis(&redis, settled))).await;
                };
                // Without a runtime, the process ends: Redis charges the reservation.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(settle);
                }
            }
        );
    }

    /// Charges the cost of a request that the share of this gateway has granted in these parts.
    fn settle_locally(&self, parts: Vec<Granted>, cost: u32) {
        backend!(self, |_| {}, |redis| {
            let (fallback, mut left) = (redis.store().fallback(), cost);
            let last = parts.last().map(|granted| granted.charge.clone());
            for granted in parts {
                let unused = granted.charge.permits.saturating_sub(left);
                left = left.saturating_sub(granted.charge.permits);
                if unused > 0 {
                    let charge = Charge { permits: unused, ..granted.charge };
                    fallback.give_back(&[Granted { charge, ..granted }]);
                }
            }
            if let Some(last) = last.filter(|_| left > 0) {
                fallback.charge_later(&Charge { permits: left, ..last });
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
