//! Bounds the retries of an upstream, so that they do not multiply an outage.
//!
//! `tower::retry::budget::TpsBudget` has the same bound, but locks a mutex for each request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The seconds that the budget covers.
const WINDOW: u64 = 10;

/// The number of slots: one for each second of the window.
const SLOTS: usize = 10;

/// The retries that are always allowed, on average in each second.
const MIN_PER_SECOND: u64 = 10;

/// The low bits of a slot: its count. The other bits are its second.
const COUNT_BITS: u32 = 32;

/// The budget of an upstream. All workers share it.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    start: Instant,
    /// The requests of the last seconds.
    requests: [AtomicU64; SLOTS],
    /// The retries of the last seconds. Locked only for a retry.
    retries: Mutex<[u64; SLOTS]>,
}

impl RetryBudget {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, requests: Default::default(), retries: Mutex::default() }
    }

    /// Counts a request.
    pub(crate) fn record_request(&self, now: Instant) {
        let (slot, second) = (&self.requests[self.slot(now)], self.second(now));
        // If two workers begin a second at the same time, one request may be missing from the count.
        if slot.load(Relaxed) >> COUNT_BITS == second {
            slot.fetch_add(1, Relaxed);
        } else {
            slot.store(second << COUNT_BITS | 1, Relaxed);
        }
    }

    /// Takes a retry. Returns `false` if the last ten seconds had more retries than `percent` of their requests, and
    /// more than ten in each second on average.
    pub(crate) fn try_take(&self, now: Instant, percent: u32) -> bool {
        let second = self.second(now);
        let requests = self.requests.iter().map(|slot| count(slot.load(Relaxed), second)).sum::<u64>();
        let mut retries = self.retries.lock();
        let taken = retries.iter().map(|slot| count(*slot, second)).sum::<u64>();
        if taken >= (requests * u64::from(percent) / 100).max(WINDOW * MIN_PER_SECOND) {
            return false;
        }
        let slot = &mut retries[self.slot(now)];
        *slot = second << COUNT_BITS | (if *slot >> COUNT_BITS == second { count(*slot, second) } else { 0 } + 1);
        true
    }

    /// Returns the number of the second, from 1 on, so that an unused slot has none.
    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs() + WINDOW
    }

    fn slot(&self, now: Instant) -> usize {
        usize::try_from(self.second(now) % WINDOW).unwrap_or_default()
    }
}

/// Returns the count of a slot, or 0 if the slot is older than the window.
fn count(slot: u64, second: u64) -> u64 {
    let is_recent = second < (slot >> COUNT_BITS) + WINDOW;
    if is_recent { slot & ((1 << COUNT_BITS) - 1) } else { 0 }
}

/// Returns the pause before a request is sent to the same target again: 25 to 50 ms, so that the requests of an outage
/// are not sent again at the same time. `random` is a random byte.
pub(crate) fn pause(random: u8) -> Duration {
    const MAX: Duration = Duration::from_millis(50);
    MAX / 2 + MAX * u32::from(random) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(budget: &RetryBudget, now: Instant) -> usize {
        (0..100_000).take_while(|_| budget.try_take(now, 20)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn retries_are_a_share_of_the_requests() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        (0..10_000).for_each(|_| budget.record_request(start));
        assert_eq!(take_all(&budget, start), 2_000);
        let later = start + Duration::from_secs(9);
        assert!(!budget.try_take(later, 20));
        (0..5_000).for_each(|_| budget.record_request(later));
        assert_eq!(take_all(&budget, later), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn ten_retries_a_second_are_always_allowed() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        assert_eq!(take_all(&budget, start), 100);
        assert_eq!(take_all(&budget, start + Duration::from_secs(9)), 0);
        assert_eq!(take_all(&budget, start + Duration::from_secs(10)), 100);
        assert_eq!(take_all(&budget, start + Duration::from_secs(3_600)), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_any_ten_seconds_are_bounded() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        let mut taken = Vec::new();
        for step in 0..600_u64 {
            let now = start + Duration::from_millis(100 * step);
            (0..step % 7 * 20).for_each(|_| budget.record_request(now));
            taken.push((0..step % 5 * 20).filter(|_| budget.try_take(now, 20)).count());
        }
        // A window of ten whole seconds, and the second that has begun.
        let most = taken.windows(100).map(|window| window.iter().sum::<usize>()).max();
        assert!(most.is_some_and(|most| (1_000..=2 * 1_200).contains(&most)), "{most:?}");
    }

    #[test]
    fn pauses_are_from_25_to_50_ms() {
        assert_eq!(pause(0), Duration::from_millis(25));
        assert!((Duration::from_millis(49)..Duration::from_millis(50)).contains(&pause(u8::MAX)));
    }
}
