//! Computes properties of a quota from its configuration: the worst case, the refill time, waits.

use super::{Algorithm, BucketState, Quota, Wait};
use crate::clock::Timestamp;

impl Algorithm {
    /// Returns the guarantee of the algorithm as a short text.
    pub fn guarantee(&self) -> &'static str {
        match self {
            Self::TokenBucket => "a permit becomes available again exactly one interval after it was granted",
            Self::Gcra { .. } => "permits become available again continuously, one by one, up to the burst",
            Self::LeakyBucket(_) => "requests are forwarded at even intervals, in the order of their arrival",
            Self::FixedWindow(_) => "all permits become available again at the end of each calendar window",
            Self::SlidingWindow { .. } => "a permit becomes available again one interval after the end of its segment",
            Self::Redisson(_) => "as token_bucket, shared with Redisson",
        }
    }
}

impl Quota {
    /// Returns the maximal number of permits that one bucket can grant in any window of one interval.
    pub fn worst_case(&self) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra { burst } => u64::from(self.rate()) + u64::from(burst),
            // All permits of a window just before a boundary, and all of the next window just after it.
            Algorithm::FixedWindow(_) => 2 * u64::from(self.rate()),
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow { .. }
            | Algorithm::Redisson(_) => u64::from(self.rate()),
        }
    }

    /// Returns the permits of an unused bucket: the maximum that can remain.
    pub fn full(&self) -> u32 {
        BucketState::EMPTY.check(self, 0, Timestamp::default()).remaining
    }

    /// Returns the maximal time in milliseconds until a bucket is full again after all its permits were charged at
    /// once. For a fixed window, this is the length of the window that contains `now`.
    pub fn refill(&self, now: Timestamp) -> u64 {
        match self.algorithm() {
            Algorithm::FixedWindow(calendar) => {
                let window = calendar.window(now);
                window.end.millis_since(window.start)
            }
            Algorithm::SlidingWindow { segments } => self.interval() + self.interval().div_ceil(segments.into()),
            Algorithm::TokenBucket | Algorithm::Gcra { .. } | Algorithm::LeakyBucket(_) | Algorithm::Redisson(_) => {
                let parts = u128::from(self.full()) * u128::from(self.interval());
                u64::try_from(parts.div_ceil(self.rate().into())).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns `true` if [`refill`](Self::refill) depends on the time: for fixed windows of a day or longer that differ
    /// in length.
    pub fn refill_time_varies(&self) -> bool {
        match self.algorithm() {
            Algorithm::FixedWindow(calendar) => calendar.varies(),
            Algorithm::TokenBucket
            | Algorithm::Gcra { .. }
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow { .. }
            | Algorithm::Redisson(_) => false,
        }
    }

    /// Returns the longest wait of a request for `permits` after all permits of its bucket were charged at once: at
    /// `now` for a fixed window, otherwise at the worst moment.
    pub fn wait_when_drained(&self, permits: u32, now: Timestamp) -> Wait {
        let now = match self.algorithm() {
            Algorithm::FixedWindow(_) => now,
            // The start of a segment, where the wait is longest.
            Algorithm::TokenBucket
            | Algorithm::Gcra { .. }
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow { .. }
            | Algorithm::Redisson(_) => Timestamp::default(),
        };
        let mut state = BucketState::EMPTY;
        let all = state.check(self, 0, now).remaining;
        state.charge(self, all, now);
        state.check(self, permits, now).wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::calendar::{Calendar, Unit};
    use crate::limit::leaky_bucket::Queue;

    const HOUR: u64 = 60 * 60 * 1000;
    const DAY: u64 = 24 * HOUR;
    /// 2026-11-24T12:00:00Z, a Tuesday.
    const NOON: u64 = 1795521600000;

    #[test]
    fn wait_of_a_drained_bucket_depends_on_the_permits() {
        let quota = Quota::new(5, 60_000, Algorithm::TokenBucket).expect("a quota");
        let now = Timestamp::from_millis(NOON);
        assert_eq!(quota.wait_when_drained(0, now), Wait::Now);
        assert_eq!(quota.wait_when_drained(1, now), Wait::Millis(60_000));
        assert_eq!(quota.wait_when_drained(6, now), Wait::Never);
    }

    /// Regression test: windows were counted from 1970, and every month had 31 days.
    #[test]
    fn calendar_windows_end_at_their_dates() {
        let now = Timestamp::from_millis(NOON);
        for (unit, zone, rest, length) in [
            (Unit::Month, "UTC", 6 * DAY + DAY / 2, 30 * DAY),
            (Unit::Month, "Europe/Rome", 6 * DAY + DAY / 2 - HOUR, 30 * DAY),
            (Unit::Week, "UTC", 5 * DAY + DAY / 2, 7 * DAY),
            (Unit::Day, "Asia/Tokyo", 3 * HOUR, DAY),
            (Unit::Hour, "UTC", HOUR, HOUR),
        ] {
            let calendar = Calendar::new(unit, zone).expect("a calendar");
            let quota = Quota::new(5, 0, Algorithm::FixedWindow(calendar)).expect("a quota");
            assert_eq!(quota.wait_when_drained(1, now), Wait::Millis(rest), "{calendar:?}");
            assert_eq!(quota.refill(now), length, "{calendar:?}");
        }
    }

    #[test]
    fn capacity_of_an_unused_bucket_can_differ_from_the_rate() {
        let told = |algorithm| {
            let quota = Quota::new(6, 60_000, algorithm).expect("a quota");
            (quota.full(), quota.refill(Timestamp::default()))
        };
        assert_eq!(told(Algorithm::TokenBucket), (6, 60_000));
        assert_eq!(told(Algorithm::Gcra { burst: 20 }), (20, 200_000));
        assert_eq!(told(Algorithm::Gcra { burst: 2 }), (2, 20_000));
        let queue = Queue { length: 3, max_wait: 600_000 };
        assert_eq!(told(Algorithm::LeakyBucket(queue)), (4, 40_000));
        assert_eq!(told(Algorithm::SlidingWindow { segments: 7 }), (6, 68_572));
    }
}
