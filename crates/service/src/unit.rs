//! The units of time of a rate limit service, and the windows in which they are counted.

use tidegate_limit::algorithm::sliding_window;
use tidegate_limit::calendar::{self, Calendar};
use tidegate_limit::text::words::words;
use tidegate_limit::{Algorithm, MAX_RATE, Quota};

words! {
    /// The unit of time of a limit.
    pub enum Unit {
        /// A second.
        Second = "second",
        /// A minute.
        Minute = "minute",
        /// An hour.
        Hour = "hour",
        /// A day.
        Day = "day",
        /// 7 days.
        Week = "week",
        /// 30 days; with `fixed_window`, a calendar month.
        Month = "month",
        /// 365 days.
        Year = "year",
    }
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
    /// Returns the length in milliseconds.
    pub const fn millis(self) -> u64 {
        const DAY: u64 = 24 * 60 * 60 * 1_000;
        match self {
            Self::Second => 1_000,
            Self::Minute => 60 * 1_000,
            Self::Hour => 60 * 60 * 1_000,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        }
    }

    /// Returns the unit of the calendar. Returns `None` for a year.
    const fn calendar(self) -> Option<calendar::Unit> {
        match self {
            Self::Second => Some(calendar::Unit::Second),
            Self::Minute => Some(calendar::Unit::Minute),
            Self::Hour => Some(calendar::Unit::Hour),
            Self::Day => Some(calendar::Unit::Day),
            Self::Week => Some(calendar::Unit::Week),
            Self::Month => Some(calendar::Unit::Month),
            Self::Year => None,
        }
    }
}

impl Window {
    /// Returns the quota of this many requests in each unit, at most [`MAX_RATE`]. Returns `None` for 0 requests.
    pub(crate) fn quota(self, requests_per_unit: u32, unit: Unit) -> Option<Quota> {
        let requests_per_unit = requests_per_unit.min(MAX_RATE);
        let algorithm = match (self, unit.calendar()) {
            (Self::Gcra, _) => Algorithm::Gcra { burst: requests_per_unit },
            (Self::SlidingWindow, _) => Algorithm::SlidingWindow { segments: sliding_window::DEFAULT_SEGMENTS },
            (Self::FixedWindow, Some(unit)) => Algorithm::FixedWindow(Calendar::utc(unit)),
            (Self::TokenBucket, _) | (Self::FixedWindow, None) => Algorithm::TokenBucket,
        };
        Quota::new(requests_per_unit.into(), unit.millis(), algorithm).ok()
    }
}
