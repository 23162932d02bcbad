//! Budgets: limits of costs that are known only after the response. A request reserves the most that it can cost in the
//! decision about all of its limits, and settles the reservation when its cost is known.
//!
//! A settlement can be sent again, unlike other charges: it has an effect only if the reservation is open. So it is repeated
//! until the store replies.

use std::pin::Pin;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cancel::CancelOnDrop;
use crate::{Backend, Store, StoreError, backend};
#[cfg(feature = "redis")]
use crate::{multi_slot, negative_cache::NegativeCache, redis::Redis};
use tidegate_rules::charge::{Charge, ChargeKind, Outcome, ReservationId, Turn};

/// The pause before a settlement is repeated, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// How long a settlement is repeated. As long, Redis can correct the charge of a lease that has ended.
const REPEATED_FOR: Duration = Duration::from_secs(600);

/// An open reservation, or what several decisions have reserved for one request. If it is dropped without a settlement, all of
/// it is charged.
#[derive(Debug)]
pub struct Reservation {
    store: Store,
    /// The reservation, with all of its permits.
    charge: Charge,
}

type ReserveFuture<'s> = Pin<Box<dyn Future<Output = Result<Outcome, StoreError>> + Send + 's>>;

impl Store {
    /// Returns the name of a new reservation.
    #[doc(hidden)]
    pub fn new_reservation(&self) -> ReservationId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let gateway = backend!(self, |_| 0, |redis| redis.store().in_flight().gateway());
        ReservationId { gateway, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Keeps a granted reservation open. In Redis, to be called in a Tokio runtime.
    #[doc(hidden)]
    pub fn keep(&self, charge: &Charge) -> Reservation {
        backend!(self, |_| {}, |redis| redis.store().keep_reservation(charge));
        Reservation { store: self.clone(), charge: charge.clone() }
    }

    /// Makes charges with reservations, all or none. A boxed future: the type of the future of [`take`](Self::take) is part of the
    /// type of each request, whose depth is bounded in programs with a layer.
    pub(crate) fn reserve<'s>(&'s self, charges: &'s [Charge], cancel: CancelOnDrop<'s>) -> ReserveFuture<'s> {
        Box::pin(async move {
            let result = self.decide(charges).await;
            cancel.finish(&result);
            result
        })
    }

    async fn decide(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        backend!(self, |memory| memory.take(charges), |redis| multi_slot::take(redis, charges).await)
    }

    /// Charges the cost of a reservation, and ends the reservation. Does nothing for other charges.
    pub(crate) fn settle(&self, reservation: &Charge, permits: u32) {
        let ChargeKind::Reserve(id) = reservation.kind else { return };
        let settled = Charge { kind: ChargeKind::Settle(id), turn: Turn::Any, permits, ..reservation.clone() };
        backend!(self, |memory| _ = memory.take(&[settled]), |redis| {
            let redis = Arc::clone(redis);
            // Without a runtime, the process ends: Redis charges the reservation.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(settle_in_redis(redis, settled));
            }
        });
    }
}

/// Repeats a settlement until Redis replies.
#[cfg(feature = "redis")]
async fn settle_in_redis(redis: Arc<NegativeCache<Redis>>, settled: Charge) {
    let (deadline, [mut pause, max_pause]) = (Instant::now() + REPEATED_FOR, PAUSE);
    while let Err(error) = multi_slot::take(&redis, from_ref(&settled)).await {
        if Instant::now() + pause > deadline {
            return tracing::warn!(%error, "failed to settle a reservation");
        }
        sleep(pause).await;
        pause = (pause * 2).min(max_pause);
    }
}

impl Reservation {
    /// The reserved permits.
    pub fn permits(&self) -> u32 {
        self.charge.permits
    }

    /// Reserves more permits. Returns `false` if the budget does not have them.
    ///
    /// # Errors
    /// The store did not decide; see [`StoreError`].
    pub async fn extend(&mut self, permits: u32) -> Result<bool, StoreError> {
        let more = Charge { permits, turn: Turn::Any, ..self.charge.clone() };
        let granted = self.store.decide(from_ref(&more)).await?.granted();
        if granted {
            self.charge.permits = self.charge.permits.saturating_add(permits);
        }
        Ok(granted)
    }

    /// Charges the cost, and ends the reservation. Permits above those that were reserved can be debt.
    pub fn settle(mut self, permits: u32) {
        self.charge.permits = permits;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        backend!(self.store, |_| {}, |redis| redis.store().drop_reservation(&self.charge));
        self.store.settle(&self.charge, self.charge.permits);
    }
}
