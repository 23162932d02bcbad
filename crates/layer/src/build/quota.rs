//! The quota of a limit.

use std::time::Duration;

use super::{Algorithm, CalendarUnit, HOUR, MINUTE, SECOND, setters};
use tidegate_config::built::{Item, Map};

/// How many permits a limit grants in which time. The algorithm decides when a permit becomes available again.
///
/// ```
/// use tidegate_layer::build::{Algorithm, CalendarUnit, Quota};
///
/// let exact = Quota::per_second(10); // at most 10 in any second
/// let bursts = Quota::per_minute(60).algorithm(Algorithm::Gcra).burst(100);
/// let monthly = Quota::new(10_000, CalendarUnit::Month).algorithm(Algorithm::FixedWindow).timezone("Europe/Rome");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a quota does nothing until a limit uses it"]
pub struct Quota {
    pub(super) keys: Map,
}

/// The interval of a rate: a [`Duration`] of whole milliseconds up to 366 days, or a [`CalendarUnit`] with
/// [`Algorithm::FixedWindow`].
#[derive(Clone, Debug)]
pub struct Interval(Item);

impl Quota {
    /// `rate` permits in each interval, 1 to 2^31.
    pub fn new(rate: u64, interval: impl Into<Interval>) -> Self {
        let mut keys = Map::default();
        keys.set("rate", rate);
        keys.set("interval", interval.into().0);
        Self { keys }
    }

    /// `rate` permits in each second.
    pub fn per_second(rate: u64) -> Self {
        Self::new(rate, SECOND)
    }

    /// `rate` permits in each minute.
    pub fn per_minute(rate: u64) -> Self {
        Self::new(rate, MINUTE)
    }

    /// `rate` permits in each hour.
    pub fn per_hour(rate: u64) -> Self {
        Self::new(rate, HOUR)
    }

    setters! {
        /// Sets the algorithm. By default [`Algorithm::TokenBucket`]: at most `rate` permits in any interval.
        algorithm(algorithm: Algorithm) = "algorithm", algorithm.name();
        /// Sets the permits in a full bucket. Only for [`Algorithm::Gcra`]; by default, the rate.
        burst(permits: u64) = "burst", permits;
        /// Sets the time in which the rate rises from a third to the full rate after idle time. Only for
        /// [`Algorithm::Gcra`].
        warm_up(time: Duration) = "warm_up", time;
        /// Sets the longest time that a request waits for permits. By default, it does not wait. For
        /// [`Algorithm::LeakyBucket`] the default is the interval.
        max_wait(time: Duration) = "max_wait", time;
        /// Sets the highest number of waiting requests. With `max_wait` the default is 100, for
        /// [`Algorithm::LeakyBucket`] the rate.
        queue(requests: u64) = "queue", requests;
        /// Sets the segments of an interval. Only for [`Algorithm::SlidingWindow`]; by default 10.
        segments(segments: u64) = "segments", segments;
        /// Sets the time zone of the calendar, such as `Europe/Rome`. Only for [`Algorithm::FixedWindow`]; by default
        /// UTC.
        timezone(name: &str) = "timezone", name;
    }
}

// === impl Interval ===

impl From<Duration> for Interval {
    fn from(duration: Duration) -> Self {
        Self(duration.into())
    }
}

impl From<CalendarUnit> for Interval {
    fn from(unit: CalendarUnit) -> Self {
        Self(unit.name().into())
    }
}

impl From<Interval> for Item {
    fn from(interval: Interval) -> Self {
        interval.0
    }
}
