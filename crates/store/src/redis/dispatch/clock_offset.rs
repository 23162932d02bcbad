//! Estimates the offset between the clock of Redis and that of this host.
//!
//! The estimate selects the calendar boundaries that a decision is sent with. No decision depends on it: Redis asks
//! for other boundaries if the estimate is wrong, and then the estimate is corrected. The ends of overrides depend on
//! it, so it is corrected before they are read.

use std::sync::atomic::{AtomicI64, Ordering};

use tidegate_limit::clock::{Clock, SystemClock, Timestamp};

/// The estimated offset of Redis's clock.
#[derive(Debug, Default)]
pub(crate) struct ClockOffset {
    clock: SystemClock,
    ahead: AtomicI64,
}

impl ClockOffset {
    /// Returns the estimated time of Redis's clock.
    pub(crate) fn redis_now(&self) -> Timestamp {
        let local = self.clock.now().as_millis();
        Timestamp::from_millis(local.saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// Corrects the estimate to a time that Redis has just returned.
    pub(crate) fn record(&self, store_time: Timestamp) {
        let local = self.clock.now().as_millis().cast_signed();
        self.ahead.store(store_time.as_millis().cast_signed().saturating_sub(local), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_estimate_is_corrected() {
        let clock = ClockOffset::default();
        for store_time in [5, 4_000_000_000_000] {
            clock.record(Timestamp::from_millis(store_time));
            let estimate = clock.redis_now().as_millis();
            assert!((store_time..store_time + 60_000).contains(&estimate), "{estimate} for {store_time}");
        }
    }
}
