//! How far the clock of Redis is ahead of ours, as far as is known.
//!
//! Nothing is decided by it: it only chooses which boundaries of a calendar a decision is sent with, and Redis asks for
//! others if the guess was wrong. A host whose clock is off is wrong once, not with every decision.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::{Clock, SystemClock, Timestamp};

/// A guess, and how wrong it was last.
#[derive(Debug, Default)]
pub(crate) struct ClockOffset {
    clock: SystemClock,
    ahead: AtomicI64,
}

impl ClockOffset {
    /// What Redis's clock may show now.
    pub(crate) fn redis_now(&self) -> Timestamp {
        let ours = self.clock.now().as_millis();
        Timestamp::from_millis(ours.saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// Redis's clock has just shown this.
    pub(crate) fn record(&self, shown: Timestamp) {
        let ours = self.clock.now().as_millis().cast_signed();
        self.ahead.store(shown.as_millis().cast_signed().saturating_sub(ours), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_that_was_wrong_is_set_right() {
        let clock = ClockOffset::default();
        for shown in [5, 4_000_000_000_000] {
            clock.record(Timestamp::from_millis(shown));
            let guess = clock.redis_now().as_millis();
            assert!((shown..shown + 60_000).contains(&guess), "{guess} for {shown}");
        }
    }
}
