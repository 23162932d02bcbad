//! The algorithms: their names, parameters and bounds. A new algorithm is a row in each list of this file.

pub(crate) mod counters;
pub(crate) mod debt;
pub(crate) mod entries;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub(crate) mod numbers;
pub(crate) mod packed;
mod properties;
pub(crate) mod quarter;
pub mod sliding_window;
pub(crate) mod state;
pub mod token_bucket;

use serde::{Deserialize, Serialize};

use self::gcra::warm_up::{self, MAX_WARM_UP, MIN_WARM_UP, WarmUp};
use self::leaky_bucket::Queue;
use super::calendar::{Calendar, Unit};
use super::redisson::Sharing;
use super::{BucketState, MAX_RATE, Quota, QuotaError, Wait};
use crate::clock::Timestamp;
use crate::text::words::words;

words! {
    /// The algorithms of the rule file. A name is also the name of the algorithm's files in `crates/limit/src/algorithm/` and `lua/`.
    pub enum AlgorithmName, default TokenBucket {
        /// One interval after it was granted.
        TokenBucket = "token_bucket",
        /// Evenly, one at a time.
        Gcra = "gcra",
        /// Evenly, and requests wait for their time slot.
        LeakyBucket = "leaky_bucket",
        /// When the next calendar window starts.
        FixedWindow = "fixed_window",
        /// When the segment in which it was granted leaves the window.
        SlidingWindow = "sliding_window",
    }
}

/// The algorithm by which permits become available again. A handover writes it as JSON: keep the names of the variants
/// and their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// A permit returns exactly one interval after it was granted: [`token_bucket`].
    TokenBucket,
    /// Permits return continuously, and `burst` of them can be in use at once: [`gcra`].
    Gcra {
        /// The capacity: 1 to [`MAX_RATE`].
        burst: u32,
    },
    /// As [`Gcra`](Self::Gcra); after idle time the rate rises from a third to the full rate: [`warm_up`]. In the rule
    /// file, it is `gcra` with `warm_up`.
    GcraWarmUp(WarmUp),
    /// Requests wait for evenly spaced time slots: [`leaky_bucket`].
    LeakyBucket(Queue),
    /// As [`TokenBucket`](Self::TokenBucket), shared with Redisson clients: [`redisson`](super::redisson). In the rule
    /// file, it is a limit with `key`.
    #[serde(skip)]
    Redisson(Sharing),
    /// A permit returns one interval after the end of its segment: [`sliding_window`].
    SlidingWindow {
        /// The number of segments of an interval, 1 to [`sliding_window::MAX_SEGMENTS`].
        segments: u32,
    },
    /// All permits return at the end of each calendar window: [`fixed_window`].
    FixedWindow(Calendar),
}

/// Bounds that follow from the numbers of a quota.
struct Bounds {
    /// See [`Quota::worst_case`].
    worst_case: u64,
    /// See [`Quota::refill`]; for a calendar, the upper bound for all windows.
    refill: u64,
    /// See [`Quota::retention_millis`].
    retention: u64,
}

/// Returns an example of each variant of the rule file's algorithms, for tests and benchmarks. `permits` is the burst, and the
/// length of the queue.
pub fn examples(permits: u32) -> impl Iterator<Item = Algorithm> {
    let of_name = move |name: &AlgorithmName| match name {
        AlgorithmName::TokenBucket => Algorithm::TokenBucket,
        AlgorithmName::Gcra => Algorithm::Gcra { burst: permits },
        AlgorithmName::LeakyBucket => Algorithm::LeakyBucket(Queue { length: permits, max_wait: 600_000 }),
        AlgorithmName::FixedWindow => Algorithm::FixedWindow(Calendar::utc(Unit::Minute)),
        AlgorithmName::SlidingWindow => Algorithm::SlidingWindow { segments: 6 },
    };
    let warm_up = Algorithm::GcraWarmUp(WarmUp { burst: permits, millis: 30_000 });
    AlgorithmName::ALL.iter().map(of_name).chain([warm_up])
}

impl Algorithm {
    /// Returns the name of the algorithm in metrics, logs and the admin interface.
    pub const fn name(&self) -> &'static str {
        self.texts().0
    }

    /// Returns the guarantee of the algorithm as a short text.
    pub const fn guarantee(&self) -> &'static str {
        self.texts().1
    }

    const fn texts(&self) -> (&'static str, &'static str) {
        let (name, guarantee) = match self {
            Self::TokenBucket => (
                AlgorithmName::TokenBucket,
                "a permit becomes available again exactly one interval after it was granted",
            ),
            Self::Gcra { .. } => {
                (AlgorithmName::Gcra, "permits become available again continuously, one by one, up to the burst")
            }
            Self::LeakyBucket(_) => {
                (AlgorithmName::LeakyBucket, "requests are forwarded at even intervals, in the order of their arrival")
            }
            Self::FixedWindow(_) => {
                (AlgorithmName::FixedWindow, "all permits become available again at the end of each calendar window")
            }
            Self::SlidingWindow { .. } => (
                AlgorithmName::SlidingWindow,
                "a permit becomes available again one interval after the end of its segment",
            ),
            Self::GcraWarmUp(_) => {
                return ("gcra_warm_up", "as gcra; after idle time the rate rises from a third to the full rate");
            }
            Self::Redisson(_) => return ("redisson", "as token_bucket, shared with Redisson"),
        };
        (name.name(), guarantee)
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// A number is out of range.
    pub(super) fn validate(&self) -> Result<(), QuotaError> {
        match *self {
            Self::Gcra { burst } if !(1..=MAX_RATE).contains(&burst) => Err(QuotaError::Burst(burst)),
            Self::SlidingWindow { segments } if !(1..=sliding_window::MAX_SEGMENTS).contains(&segments) => {
                Err(QuotaError::Segments(segments))
            }
            Self::GcraWarmUp(WarmUp { burst, .. }) if !(1..=MAX_RATE).contains(&burst) => Err(QuotaError::Burst(burst)),
            Self::GcraWarmUp(WarmUp { millis, .. }) if !(MIN_WARM_UP..=MAX_WARM_UP).contains(&millis) => {
                Err(QuotaError::WarmUp(millis))
            }
            Self::TokenBucket
            | Self::Gcra { .. }
            | Self::GcraWarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingWindow { .. }
            | Self::FixedWindow(_)
            | Self::Redisson(_) => Ok(()),
        }
    }
}

impl Quota {
    /// Returns the maximal number of permits in use, which is also the maximum for a single request.
    pub const fn capacity(&self) -> u32 {
        match self.algorithm.burst() {
            Some(burst) => burst,
            None => self.rate,
        }
    }

    /// Returns the permits of an unused bucket: the maximum that can remain.
    pub fn full(&self) -> u32 {
        match self.algorithm {
            Algorithm::LeakyBucket(_) => leaky_bucket::unused_permits(self),
            _ => self.capacity(),
        }
    }

    fn bounds(&self) -> Bounds {
        let (rate, interval) = (u64::from(self.rate), self.interval);
        let one_by_one = |permits: u32| {
            let parts = u128::from(permits) * u128::from(interval);
            u64::try_from(parts.div_ceil(rate.into())).unwrap_or(u64::MAX)
        };
        let window = Bounds { worst_case: rate, refill: interval, retention: interval };
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::Redisson(_) => window,
            Algorithm::Gcra { burst } => {
                let refill = one_by_one(burst);
                Bounds { worst_case: rate + u64::from(burst), refill, retention: refill.max(interval) }
            }
            Algorithm::GcraWarmUp(WarmUp { burst, .. }) => {
                let [refill, retention] = warm_up::refill(self);
                Bounds { worst_case: rate + u64::from(burst), refill, retention: retention.max(interval) }
            }
            Algorithm::LeakyBucket(queue) => {
                let retention = one_by_one(queue.length.saturating_add(1)).max(interval);
                Bounds { refill: one_by_one(self.full()), retention, ..window }
            }
            Algorithm::SlidingWindow { segments } => {
                let with_segment = interval + interval.div_ceil(segments.into());
                Bounds { refill: with_segment, retention: with_segment, ..window }
            }
            Algorithm::FixedWindow(_) => {
                // A day may have 25 hours.
                let longest = interval + interval.min(60 * 60 * 1_000);
                // All permits of a window just before a boundary, and all of the next window just after it.
                Bounds { worst_case: 2 * rate, refill: longest, retention: longest }
            }
        }
    }

    /// Returns this quota with other numbers of permits. `permits` converts the rate and the burst, and `queue` the
    /// length of the queue. The new rate and burst are at least 1 and at most [`MAX_RATE`].
    #[must_use]
    pub fn scaled(&self, permits: impl Fn(u32) -> u32, queue: impl Fn(u32) -> u32) -> Self {
        let permits = |before: u32| permits(before).clamp(1, MAX_RATE);
        let algorithm = match self.algorithm {
            Algorithm::Gcra { burst } => Algorithm::Gcra { burst: permits(burst) },
            Algorithm::GcraWarmUp(warm_up) => {
                Algorithm::GcraWarmUp(WarmUp { burst: permits(warm_up.burst), ..warm_up })
            }
            Algorithm::LeakyBucket(Queue { length, max_wait }) => {
                Algorithm::LeakyBucket(Queue { length: queue(length), max_wait })
            }
            same @ (Algorithm::TokenBucket
            | Algorithm::SlidingWindow { .. }
            | Algorithm::FixedWindow(_)
            | Algorithm::Redisson(_)) => same,
        };
        Self { rate: permits(self.rate), algorithm, ..*self }
    }

    /// Returns the maximal number of permits that one bucket can grant in any window of one interval.
    pub fn worst_case(&self) -> u64 {
        self.bounds().worst_case
    }

    /// Returns how long a grant must be remembered, in milliseconds: at least as long as it counts in a bucket that is
    /// not above its limit.
    pub fn retention_millis(&self) -> u64 {
        self.bounds().retention
    }

    /// Returns the maximal time in milliseconds until a bucket is full again after all its permits were charged at
    /// once. For a fixed window, this is the length of the window that contains `now`.
    pub fn refill(&self, now: Timestamp) -> u64 {
        let window = self.algorithm.calendar().map(|calendar| calendar.window(now));
        window.map_or_else(|| self.bounds().refill, |window| window.end.millis_since(window.start))
    }

    /// Returns `true` if [`refill`](Self::refill) depends on the time: for fixed windows of a day or longer that differ
    /// in length.
    pub fn refill_time_varies(&self) -> bool {
        self.algorithm.calendar().is_some_and(|calendar| calendar.varies())
    }

    /// Returns the longest wait of a request for `permits` after all permits of its bucket were charged at once: at
    /// `now` for a fixed window, otherwise at the worst moment.
    pub fn wait_when_drained(&self, permits: u32, now: Timestamp) -> Wait {
        // Time 0 is the start of a segment, where the wait is longest.
        let now = self.algorithm.calendar().map_or(Timestamp::default(), |_| now);
        let mut state = BucketState::EMPTY;
        let all = state.check(self, 0, now).remaining;
        state.charge(self, all, now);
        state.check(self, permits, now).wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let full_and_refill = |algorithm| {
            let quota = Quota::new(6, 60_000, algorithm).expect("a quota");
            (quota.full(), quota.refill(Timestamp::default()))
        };
        assert_eq!(full_and_refill(Algorithm::TokenBucket), (6, 60_000));
        assert_eq!(full_and_refill(Algorithm::Gcra { burst: 20 }), (20, 200_000));
        assert_eq!(full_and_refill(Algorithm::Gcra { burst: 2 }), (2, 20_000));
        let queue = Queue { length: 3, max_wait: 600_000 };
        assert_eq!(full_and_refill(Algorithm::LeakyBucket(queue)), (4, 40_000));
        assert_eq!(full_and_refill(Algorithm::SlidingWindow { segments: 7 }), (6, 68_572));
    }
    /// The upper bounds hold for the decisions of each algorithm.
    #[test]
    fn bounds_hold_for_each_algorithm() {
        for algorithm in examples(4) {
            let quota = Quota::new(10, 60_000, algorithm).expect("a quota");
            let (mut state, start) = (BucketState::EMPTY, Timestamp::from_millis(NOON));
            assert_eq!(state.check(&quota, 0, start).remaining, quota.full(), "{algorithm:?}");
            assert_eq!(state.check(&quota, quota.capacity() + 1, start).wait, Wait::Never, "{algorithm:?}");
            let (mut granted, end) = (0, start.plus_millis(60_000));
            for now in (0..60).map(|second| start.plus_millis(second * 1_000)) {
                while let decision = state.check(&quota, 1, now)
                    && decision.granted
                {
                    granted += u64::from(now.plus_millis(decision.delay) < end);
                    state.charge(&quota, 1, now);
                }
            }
            assert!((1..=quota.worst_case()).contains(&granted), "{granted} by {algorithm:?}");
            let full = state.full_at(&quota).millis_since(start.plus_millis(59_000));
            assert!(full <= quota.retention_millis(), "full after {full} ms by {algorithm:?}");
        }
    }
    /// Gateways of other versions write and read these texts in a handover.
    #[test]
    fn algorithms_keep_their_written_form() {
        let texts = [
            r#""token_bucket""#,
            r#"{"gcra":{"burst":12}}"#,
            r#"{"leaky_bucket":{"length":12,"max_wait":600000}}"#,
            r#"{"fixed_window":{"unit":"minute","zone":"UTC"}}"#,
            r#"{"sliding_window":{"segments":6}}"#,
            r#"{"gcra_warm_up":{"burst":12,"millis":30000}}"#,
        ];
        let serialized = examples(12).map(|algorithm| serde_json::to_string(&algorithm).expect("a text"));
        assert_eq!(serialized.collect::<Vec<_>>(), texts);
        let read = texts.map(|text| serde_json::from_str::<Algorithm>(text).expect("an algorithm"));
        assert!(read.into_iter().eq(examples(12)), "{read:?}");
        let wrong = r#"{"fixed_window":{"unit":"day","zone":"Europe/Atlantis"}}"#;
        assert!(serde_json::from_str::<Algorithm>(wrong).is_err());
    }
}
