//! Decides as the gateway does, at the times of a log: by the admission and the embedded store, with a manual clock.

use std::sync::Arc;

use futures_util::FutureExt;

use crate::report::decided::Decided;
use tidegate_layer::admission::{Denial, WaitQueues, admit, charge_by_response};
use tidegate_limit::clock::{Clock, ManualClock, Timestamp};
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

    /// Makes all charges of a request or none, now. Returns `true` if it is admitted.
    pub(crate) fn admit(&self, charges: &mut Charges<'_>) -> bool {
        // The embedded store decides at once, except about adopted limits, which are not replayed.
        let admitted = admit(&self.store, &self.queues, charges, None).now_or_never();
        !matches!(admitted, Some(Err(Denial::Limited { .. })))
    }

    /// Adds the decisions of the limits about a request that is not charged.
    pub(crate) fn read(&self, charges: &mut Charges<'_>) {
        let decided = self.store.take_immediately(&charges.reads()).and_then(Result::ok);
        charges.decide(decided.unwrap_or_default());
    }

    /// Charges an admitted request by its response.
    pub(crate) fn charge_by_response(&self, decided: &mut Decided<'_>) {
        let response = decided.origin.response;
        _ = charge_by_response(&mut decided.charges, &self.store, response, true).now_or_never();
    }
}
