//! The units of time of a rate limit service, and the windows in which they are counted.

use tidegate_limit::algorithm::sliding_window;
use tidegate_limit::calendar::{self, Calendar};
use tidegate_limit::text::words::words;
use tidegate_limit::{Algorithm, AlgorithmName, MAX_RATE, Quota};

/// The unit of time of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A unit of the calendar. Only `fixed_window` counts its calendar windows; for other algorithms, a month has 30 days.
    Calendar(calendar::Unit),
    /// 365 days.
    Year,
}

words! {
    /// The algorithm of the limits of a service. A service answers immediately, so no algorithm assigns time slots.
    pub enum Window, default TokenBucket {
        /// One unit after it was granted.
        TokenBucket = "token_bucket",
        /// Evenly, one at a time. A full bucket has the permits of one unit.
        Gcra = "gcra",
        /// When the next calendar window in UTC starts. A year has no such windows, and uses `token_bucket`.
        FixedWindow = "fixed_window",
        /// When the segment in which it was granted leaves the window. A window has 10 segments.
        SlidingWindow = "sliding_window",
    }
}

impl Unit {
    /// A second.
    pub const SECOND: Self = Self::Calendar(calendar::Unit::Second);
    /// A minute.
    pub const MINUTE: Self = Self::Calendar(calendar::Unit::Minute);
    /// An hour.
    pub const HOUR: Self = Self::Calendar(calendar::Unit::Hour);
    /// A day.
    pub const DAY: Self = Self::Calendar(calendar::Unit::Day);
    /// 7 days.
    pub const WEEK: Self = Self::Calendar(calendar::Unit::Week);
    /// 30 days; with `fixed_window`, a calendar month.
    pub const MONTH: Self = Self::Calendar(calendar::Unit::Month);

    /// All units, from the shortest to the longest.
    pub const ALL: [Self; 7] = [Self::SECOND, Self::MINUTE, Self::HOUR, Self::DAY, Self::WEEK, Self::MONTH, Self::Year];

    /// Returns the word of the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calendar(unit) => unit.name(),
            Self::Year => "year",
        }
    }

    /// Returns the unit of a word. Returns `None` for other texts.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Returns the length in milliseconds.
    pub const fn millis(self) -> u64 {
        const DAY: u64 = calendar::Unit::Day.millis();
        match self {
            Self::Calendar(calendar::Unit::Month) => 30 * DAY,
            Self::Calendar(unit) => unit.millis(),
            Self::Year => 365 * DAY,
        }
    }

    /// Returns the unit in which a quota counts. Returns `None` if its interval is no unit.
    pub(crate) fn of_quota(quota: &Quota) -> Option<Self> {
        match quota.algorithm() {
            Algorithm::FixedWindow(calendar) => Some(Self::Calendar(calendar.unit())),
            _ => Self::ALL.into_iter().find(|unit| unit.millis() == quota.interval()),
        }
    }
}

impl Window {
    /// Returns the quota of this many requests in each unit, at most [`MAX_RATE`]. Returns `None` for 0 requests.
    pub(crate) fn quota(self, requests_per_unit: u32, unit: Unit) -> Option<Quota> {
        let requests_per_unit = requests_per_unit.min(MAX_RATE);
        let (interval, algorithm) = match (self, unit) {
            (Self::Gcra, _) => (unit.millis(), Algorithm::Gcra { burst: requests_per_unit }),
            (Self::SlidingWindow, _) => {
                (unit.millis(), Algorithm::SlidingWindow { segments: sliding_window::DEFAULT_SEGMENTS })
            }
            // The interval of a calendar month is the longest one.
            (Self::FixedWindow, Unit::Calendar(unit)) => (unit.millis(), Algorithm::FixedWindow(Calendar::utc(unit))),
            (Self::TokenBucket, _) | (Self::FixedWindow, Unit::Year) => (unit.millis(), Algorithm::TokenBucket),
        };
        Quota::new(requests_per_unit.into(), interval, algorithm).ok()
    }

    /// Returns the algorithm.
    pub const fn algorithm(self) -> AlgorithmName {
        match self {
            Self::TokenBucket => AlgorithmName::TokenBucket,
            Self::Gcra => AlgorithmName::Gcra,
            Self::FixedWindow => AlgorithmName::FixedWindow,
            Self::SlidingWindow => AlgorithmName::SlidingWindow,
        }
    }
}
