//! Decides as the gateway does, at the times of a log: by the admission and the embedded store, with a manual clock.

use std::sync::Arc;

use futures_util::FutureExt;

use crate::report::decided::Decided;
use tidegate_layer::admission::{Admitted, Denial, LimitStatus, Receipt, WaitQueues, admit};
use tidegate_limit::clock::{Clock, ManualClock, Timestamp};
use tidegate_limit::{Charge, ChargeKind};
use tidegate_rules::rules::Charges;
use tidegate_store::Store;

/// The maximum number of buckets. Memory ends earlier: permits in use are never dropped to bound a replay.
const MAX_BUCKETS: usize = 1 << 28;

/// The store and its clock.
#[derive(Debug)]
pub(crate) struct Decider {
    store: Store,
    clock: Arc<ManualClock>,
    /// Without requests: [`Waiting`](crate::engine::waiting::Waiting) has its own queues.
    queues: WaitQueues,
}

/// The decisions of a request that limits refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: LimitStatus,
}

impl Decider {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Store::memory_builder().clock(Arc::clone(&clock) as _).max_buckets(MAX_BUCKETS).open();
        Self { store, clock, queues: WaitQueues::new() }
    }

    /// Returns the time of the clock, in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now().as_millis()
    }

    /// Sets the clock, unless the time is earlier. Returns `false` then.
    pub(crate) fn set_time(&self, millis: u64) -> bool {
        let now = self.now();
        if millis > now {
            self.clock.set(Timestamp::from_millis(millis));
        }
        millis >= now
    }

    /// Makes all charges of a request or none, now.
    pub(crate) fn admit(&self, charges: &Charges<'_>) -> Result<LimitStatus, Refused> {
        match admit(&self.store, &self.queues, charges, None).now_or_never() {
            Some(Ok(Admitted { status, .. })) => Ok(status),
            Some(Err(Denial::Limited { status, .. })) => Err(Refused { status }),
            // The embedded store decides at once, except about adopted limits, which are not replayed.
            Some(Err(Denial::StoreFailed(_) | Denial::Busy { .. })) | None => Ok(LimitStatus::default()),
        }
    }

    /// Returns the decisions of the limits about a request that is not charged.
    pub(crate) fn read(&self, charges: &Charges<'_>) -> LimitStatus {
        let asked: Vec<_> =
            charges.as_slice().iter().map(|charge| Charge { kind: ChargeKind::Check, ..charge.clone() }).collect();
        let decided = self.store.take_immediately(&asked).and_then(Result::ok);
        decided.map_or_else(LimitStatus::default, |outcome| LimitStatus::new(charges, outcome))
    }

    /// Settles the charges of an admitted request with the status of its response.
    pub(crate) fn settle<'r>(&self, decided: Decided<'r>) -> Decided<'r> {
        let Decided { origin, charges, status, .. } = &decided;
        let receipt = Receipt::new(charges.clone(), status.clone());
        let settled = receipt.settle(&self.store, origin.limits, origin.response, true).now_or_never();
        let Some((charges, status)) = settled else { return decided };
        Decided { charges, status, ..decided }
    }
}
