//! Whether a client sends or reads a body fast enough.
//!
//! Only the time counts in which nothing but the client is waited for. It is cut into stretches of `body_timeout`; in each,
//! so much must move that it makes `min_rate` a second. No stretch is shorter: clients pause, and the kernel reports what
//! it has sent in lumps. A whole `body_timeout` in one piece without a byte is too long whatever came before it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// `since` while nothing is waited for.
const NEVER: u64 = u64::MAX;

/// Notes on a body. Moments and times are milliseconds; one task writes them.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Since when the client has been waited for.
    since: AtomicU64,
    /// How much of that wait belongs to a stretch that is over.
    counted: AtomicU32,
    /// How long it was waited for in this stretch before that.
    waited: AtomicU32,
    /// Bytes that moved in this stretch.
    moved: AtomicU64,
}

/// What is asked of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) timeout: Duration,
    /// Bytes a second; of 0, any progress is enough.
    pub(crate) rate: u64,
}

/// The client is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl Pace {
    pub(crate) const fn new() -> Self {
        Self {
            since: AtomicU64::new(NEVER),
            counted: AtomicU32::new(0),
            waited: AtomicU32::new(0),
            moved: AtomicU64::new(0),
        }
    }

    /// Notes that the client is waited for. Reads the clock only at the beginning of a wait.
    pub(crate) fn wait(&self, now: impl FnOnce() -> u64) {
        if !self.is_waiting() {
            self.since.store(now(), Relaxed);
        }
    }

    /// Notes that so many bytes moved.
    pub(crate) fn moves(&self, bytes: usize, now: impl FnOnce() -> u64) {
        if self.is_waiting() {
            self.waited.store(short(self.stretch(now())), Relaxed);
            self.since.store(NEVER, Relaxed);
            self.counted.store(0, Relaxed);
        } else if self.waited.load(Relaxed) == 0 {
            return;
        }
        self.moved.store(self.moved.load(Relaxed).saturating_add(bytes as u64), Relaxed);
    }

    /// Resets for the next body.
    pub(crate) fn rest(&self) {
        if self.is_waiting() || self.waited.load(Relaxed) != 0 {
            self.since.store(NEVER, Relaxed);
            self.begin_stretch(0);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.since().is_some()
    }

    /// Since when the client has been waited for.
    pub(crate) fn since(&self) -> Option<u64> {
        Some(self.since.load(Relaxed)).filter(|since| *since != NEVER)
    }

    /// When to look again at a client that is waited for.
    ///
    /// # Errors
    /// It does not keep up.
    pub(crate) fn judge(&self, now: u64, demand: Demand) -> Result<Option<u64>, TooSlow> {
        let timeout = millis(demand.timeout);
        let since = self.since.load(Relaxed);
        let pause = if self.is_waiting() { now.saturating_sub(since) } else { 0 };
        if pause >= timeout {
            return Err(TooSlow);
        }
        let mut stretch = self.stretch(now);
        if stretch >= timeout {
            let needed = u128::from(stretch) * u128::from(demand.rate) / 1000;
            if u128::from(self.moved.load(Relaxed)) < needed {
                return Err(TooSlow);
            }
            self.begin_stretch(pause);
            stretch = 0;
        }
        let left = (timeout - pause).min(timeout - stretch);
        Ok(self.is_waiting().then(|| now.saturating_add(left)))
    }

    /// How long the client has been waited for in this stretch.
    fn stretch(&self, now: u64) -> u64 {
        let since = self.since.load(Relaxed);
        let pause = if since == NEVER { 0 } else { now.saturating_sub(since) };
        let waited = u64::from(self.waited.load(Relaxed));
        waited.saturating_add(pause.saturating_sub(self.counted.load(Relaxed).into()))
    }

    fn begin_stretch(&self, counted: u64) {
        self.counted.store(short(counted), Relaxed);
        self.waited.store(0, Relaxed);
        self.moved.store(0, Relaxed);
    }
}

/// A time within a stretch, which is not much longer than a timeout. Every idle connection has room for these.
fn short(millis: u64) -> u32 {
    u32::try_from(millis).unwrap_or(u32::MAX)
}

/// A duration in milliseconds, smaller than [`NEVER`].
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand = Demand { timeout: Duration::from_secs(30), rate: 240 };

    /// A client that sends `bytes` every `every` milliseconds; when it was found to be too slow, if it was within an hour.
    fn ends(bytes: usize, every: u64) -> Option<u64> {
        let (pace, mut now) = (Pace::new(), 0);
        pace.wait(|| now);
        let (mut look, mut next) = (30_000, every);
        while now < 3_600_000 {
            now = look.min(next);
            if now == next {
                pace.moves(bytes, || now);
                pace.wait(|| now);
                next += every;
            }
            if now >= look {
                match pace.judge(now, DEMAND) {
                    Ok(at) => look = at.unwrap(),
                    Err(TooSlow) => return Some(now),
                }
            }
        }
        None
    }

    #[test]
    fn a_client_that_moves_little_is_too_slow_however_often_it_does() {
        assert_eq!(ends(1, 29_000), Some(30_000));
        assert_eq!(ends(1, 1), None, "a kilobyte a second is enough");
        assert_eq!(ends(23, 100), Some(30_000));
        assert_eq!(ends(25, 100), None);
    }

    #[test]
    fn lumps_are_as_good_as_a_stream() {
        assert_eq!(ends(8_000, 29_000), None);
        assert_eq!(ends(1_000_000, 30_001), Some(30_000));
    }

    #[test]
    fn what_was_fast_once_is_not_forgiven_for_ever() {
        let pace = Pace::new();
        pace.wait(|| 0);
        pace.moves(1 << 30, || 10);
        pace.wait(|| 10);
        assert_eq!(pace.judge(20_000, DEMAND), Ok(Some(30_000)));
        pace.moves(1, || 25_000);
        pace.wait(|| 25_000);
        assert_eq!(pace.judge(30_000, DEMAND), Ok(Some(55_000)), "a whole stretch later, less the pause that goes on");
        pace.moves(1, || 50_000);
        pace.wait(|| 50_000);
        assert_eq!(pace.judge(60_000, DEMAND), Err(TooSlow));
    }

    #[test]
    fn only_waiting_takes_time() {
        let pace = Pace::new();
        for round in 0..100 {
            let begin = round * 1_000_000;
            pace.wait(|| begin);
            pace.moves(10, || begin + 10);
            assert_eq!(pace.judge(begin + 900_000, DEMAND), Ok(None));
        }
    }

    #[test]
    fn without_a_rate_any_progress_will_do() {
        let (pace, demand) = (Pace::new(), Demand { rate: 0, ..DEMAND });
        for round in 0..100 {
            pace.wait(|| round * 29_000);
            assert!(pace.judge(round * 29_000 + 28_999, demand).is_ok());
            pace.moves(1, || (round + 1) * 29_000);
        }
        pace.wait(|| 0);
        assert_eq!(pace.judge(30_000, demand), Err(TooSlow));
    }
}
