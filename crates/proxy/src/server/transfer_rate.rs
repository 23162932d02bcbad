//! Checks that a client sends or reads a body fast enough.
//!
//! Time counts only while the gateway waits for the client alone. It is divided into intervals of `body_timeout`. In
//! each interval the body must move at `min_rate` bytes a second on average. Intervals are not shorter, because clients
//! pause and the kernel reports progress in large steps. A client that moves nothing for a whole `body_timeout` is too
//! slow, however fast it was before.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The value of `since` while the gateway does not wait for the client.
const NOT_WAITING: u64 = u64::MAX;

/// The progress of a body. Times are in milliseconds. Only one task writes the fields.
#[derive(Debug)]
pub(crate) struct TransferRate {
    /// When the current wait for the client began.
    since: AtomicU64,
    /// How much of the current wait belongs to earlier intervals.
    counted: AtomicU32,
    /// How long earlier waits of this interval took.
    waited: AtomicU32,
    /// Bytes that moved in this interval.
    moved: AtomicU64,
}

/// The minimum rate of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinRate {
    pub(crate) timeout: Duration,
    /// Bytes a second. With 0, any progress is enough.
    pub(crate) rate: u64,
}

/// The client is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl TransferRate {
    pub(crate) const fn new() -> Self {
        Self {
            since: AtomicU64::new(NOT_WAITING),
            counted: AtomicU32::new(0),
            waited: AtomicU32::new(0),
            moved: AtomicU64::new(0),
        }
    }

    /// Records that the gateway waits for the client. Reads the clock only at the beginning of a wait.
    pub(crate) fn begin_wait(&self, now: impl FnOnce() -> u64) {
        if !self.is_waiting() {
            self.since.store(now(), Relaxed);
        }
    }

    /// Records that bytes moved, which ends a wait.
    pub(crate) fn record_bytes(&self, bytes: usize, now: impl FnOnce() -> u64) {
        if self.is_waiting() {
            self.waited.store(saturate(self.interval_wait(now())), Relaxed);
            self.since.store(NOT_WAITING, Relaxed);
            self.counted.store(0, Relaxed);
        } else if self.waited.load(Relaxed) == 0 {
            return;
        }
        self.moved.store(self.moved.load(Relaxed).saturating_add(bytes as u64), Relaxed);
    }

    /// Resets the record for the next body.
    pub(crate) fn reset(&self) {
        if self.is_waiting() || self.waited.load(Relaxed) != 0 {
            self.since.store(NOT_WAITING, Relaxed);
            self.begin_interval(0);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_since().is_some()
    }

    /// Returns when the current wait for the client began.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        Some(self.since.load(Relaxed)).filter(|since| *since != NOT_WAITING)
    }

    /// Returns when to check a waiting client again, or `None` if the gateway does not wait for it.
    ///
    /// # Errors
    /// The client is too slow.
    pub(crate) fn check(&self, now: u64, min_rate: MinRate) -> Result<Option<u64>, TooSlow> {
        let timeout = millis(min_rate.timeout);
        let since = self.since.load(Relaxed);
        let pause = if self.is_waiting() { now.saturating_sub(since) } else { 0 };
        if pause >= timeout {
            return Err(TooSlow);
        }
        let mut interval = self.interval_wait(now);
        if interval >= timeout {
            let needed = u128::from(interval) * u128::from(min_rate.rate) / 1000;
            if u128::from(self.moved.load(Relaxed)) < needed {
                return Err(TooSlow);
            }
            self.begin_interval(pause);
            interval = 0;
        }
        let remaining = (timeout - pause).min(timeout - interval);
        Ok(self.is_waiting().then(|| now.saturating_add(remaining)))
    }

    /// Returns how long the gateway has waited for the client in this interval.
    fn interval_wait(&self, now: u64) -> u64 {
        let since = self.since.load(Relaxed);
        let pause = if since == NOT_WAITING { 0 } else { now.saturating_sub(since) };
        let waited = u64::from(self.waited.load(Relaxed));
        waited.saturating_add(pause.saturating_sub(self.counted.load(Relaxed).into()))
    }

    fn begin_interval(&self, counted: u64) {
        self.counted.store(saturate(counted), Relaxed);
        self.waited.store(0, Relaxed);
        self.moved.store(0, Relaxed);
    }
}

/// Converts a time within an interval, which is not much longer than a timeout. The small type saves memory in idle
/// connections.
fn saturate(millis: u64) -> u32 {
    u32::try_from(millis).unwrap_or(u32::MAX)
}

/// Converts a duration to milliseconds, less than [`NOT_WAITING`].
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NOT_WAITING - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RATE: MinRate = MinRate { timeout: Duration::from_secs(30), rate: 240 };

    /// Returns when a client that sends `bytes` every `every` milliseconds is found to be too slow, if it is within an
    /// hour.
    fn too_slow_at(bytes: usize, every: u64) -> Option<u64> {
        let (rate, mut now) = (TransferRate::new(), 0);
        rate.begin_wait(|| now);
        let (mut check_at, mut next) = (30_000, every);
        while now < 3_600_000 {
            now = check_at.min(next);
            if now == next {
                rate.record_bytes(bytes, || now);
                rate.begin_wait(|| now);
                next += every;
            }
            if now >= check_at {
                match rate.check(now, MIN_RATE) {
                    Ok(at) => check_at = at.unwrap(),
                    Err(TooSlow) => return Some(now),
                }
            }
        }
        None
    }

    #[test]
    fn client_below_the_minimum_rate_is_too_slow() {
        assert_eq!(too_slow_at(1, 29_000), Some(30_000));
        assert_eq!(too_slow_at(1, 1), None, "a kilobyte a second is enough");
        assert_eq!(too_slow_at(23, 100), Some(30_000));
        assert_eq!(too_slow_at(25, 100), None);
    }

    #[test]
    fn large_steps_within_the_timeout_are_fast_enough() {
        assert_eq!(too_slow_at(8_000, 29_000), None);
        assert_eq!(too_slow_at(1_000_000, 30_001), Some(30_000));
    }

    #[test]
    fn fast_start_does_not_excuse_a_later_stall() {
        let rate = TransferRate::new();
        rate.begin_wait(|| 0);
        rate.record_bytes(1 << 30, || 10);
        rate.begin_wait(|| 10);
        assert_eq!(rate.check(20_000, MIN_RATE), Ok(Some(30_000)));
        rate.record_bytes(1, || 25_000);
        rate.begin_wait(|| 25_000);
        // The current pause began at 25 s, and may last 30 s.
        assert_eq!(rate.check(30_000, MIN_RATE), Ok(Some(55_000)));
        rate.record_bytes(1, || 50_000);
        rate.begin_wait(|| 50_000);
        assert_eq!(rate.check(60_000, MIN_RATE), Err(TooSlow));
    }

    #[test]
    fn only_waits_are_timed() {
        let rate = TransferRate::new();
        for round in 0..100 {
            let begin = round * 1_000_000;
            rate.begin_wait(|| begin);
            rate.record_bytes(10, || begin + 10);
            assert_eq!(rate.check(begin + 900_000, MIN_RATE), Ok(None));
        }
    }

    #[test]
    fn rate_of_zero_accepts_any_progress() {
        let (rate, min_rate) = (TransferRate::new(), MinRate { rate: 0, ..MIN_RATE });
        for round in 0..100 {
            rate.begin_wait(|| round * 29_000);
            assert!(rate.check(round * 29_000 + 28_999, min_rate).is_ok());
            rate.record_bytes(1, || (round + 1) * 29_000);
        }
        rate.begin_wait(|| 0);
        assert_eq!(rate.check(30_000, min_rate), Err(TooSlow));
    }
}
