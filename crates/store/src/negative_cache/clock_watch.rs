//! Detects that the clock of a store was set back.
//!
//! Each reply contains a reading of that clock, taken between request and reply. So the offset to the local monotonic
//! clock is in a known range. If a later range is entirely below an earlier one, the clock was set back.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use tidegate_limit::clock::Timestamp;

/// The maximum age of the last reading while requests are refused from the cache.
pub(super) const MAX_READING_AGE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ClockWatch {
    start: Instant,
    /// The least possible offset: milliseconds by which the store's clock is ahead.
    ahead: AtomicI64,
    /// The time of the next reading, in milliseconds since `start`.
    due: AtomicU64,
}

impl Default for ClockWatch {
    fn default() -> Self {
        Self { start: Instant::now(), ahead: AtomicI64::new(i64::MIN), due: AtomicU64::default() }
    }
}

impl ClockWatch {
    /// Returns `true` if a reading is due. Only one caller gets `true`.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let (now, due) = (self.millis(now), self.due.load(Relaxed));
        due <= now && self.due.compare_exchange(due, next_due(now), Relaxed, Relaxed).is_ok()
    }

    /// Records a reading taken between `sent_at` and `received_at`. Returns `true` if the clock was set back.
    pub(super) fn went_back(&self, store_time: Timestamp, sent_at: Instant, received_at: Instant) -> bool {
        let (sent_at, received_at) = (self.millis(sent_at), self.millis(received_at));
        // Most replies change nothing, and a load is cheaper than a write.
        if self.due.load(Relaxed) < next_due(received_at) {
            self.due.fetch_max(next_due(received_at), Relaxed);
        }
        let store_time = store_time.as_millis().cast_signed();
        // Both clocks are truncated to milliseconds.
        let (min_ahead, max_ahead) =
            (store_time - received_at.cast_signed() - 1, store_time - sent_at.cast_signed() + 1);
        let ahead = self.ahead.load(Relaxed);
        if max_ahead < ahead {
            self.ahead.store(min_ahead, Relaxed);
        } else if min_ahead > ahead {
            self.ahead.fetch_max(min_ahead, Relaxed);
        }
        max_ahead < ahead
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX >> 2)
    }
}

fn next_due(now: u64) -> u64 {
    now + u64::from(MAX_READING_AGE.subsec_millis())
}
