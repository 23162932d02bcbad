//! Notices when the clock of a store goes back.
//!
//! Each answer shows that clock at some moment between two that are known here, so the distance between the two clocks lies in
//! a span. When a later span ends before an earlier one begins, one of the clocks was set; the one here is monotonic.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Timestamp;

/// How old what is known of the clock may be while requests are refused from memory.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ClockWatch {
    begin: Instant,
    /// Milliseconds that the store's clock is ahead of ours since `begin`, at least.
    ahead: AtomicI64,
    /// When to look again, in milliseconds since `begin`.
    due: AtomicU64,
}

impl Default for ClockWatch {
    fn default() -> Self {
        Self { begin: Instant::now(), ahead: AtomicI64::new(i64::MIN), due: AtomicU64::default() }
    }
}

impl ClockWatch {
    /// Is it time to look? Says so to one of all who ask.
    pub(super) fn is_due(&self) -> bool {
        let (now, due) = (self.millis(Instant::now()), self.due.load(Relaxed));
        due <= now && self.due.compare_exchange(due, again(now), Relaxed, Relaxed).is_ok()
    }

    /// It has shown this at some moment between these two. Did it go back before?
    pub(super) fn went_back(&self, shown: Timestamp, asked: Instant, heard: Instant) -> bool {
        let (asked, heard) = (self.millis(asked), self.millis(heard));
        // Most answers change nothing, and so are only looked at.
        if self.due.load(Relaxed) < again(heard) {
            self.due.fetch_max(again(heard), Relaxed);
        }
        let shown = shown.as_millis().cast_signed();
        // Clocks are read in whole milliseconds, of which the present one had begun already.
        let (least, most) = (shown - heard.cast_signed() - 1, shown - asked.cast_signed() + 1);
        let ahead = self.ahead.load(Relaxed);
        if most < ahead {
            self.ahead.store(least, Relaxed);
        } else if least > ahead {
            self.ahead.fetch_max(least, Relaxed);
        }
        most < ahead
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begin).as_millis()).unwrap_or(u64::MAX >> 2)
    }
}

fn again(now: u64) -> u64 {
    now + u64::from(LOOK_AGAIN.subsec_millis())
}
