//! The intervals of suggestions.

use tidegate_config::Millis;
use tidegate_limit::algorithm::gcra::warm_up::WarmUp;
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, AlgorithmName, Quota};

/// The intervals of suggestions, in milliseconds, besides the interval of the limit.
const INTERVALS: [u64; 5] = [1_000, 10_000, 60_000, 600_000, 3_600_000];

/// The calendar units of suggestions.
const UNITS: [Unit; 4] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day];

/// An interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) millis: u64,
    /// The calendar of a fixed window.
    calendar: Option<Calendar>,
}

impl Window {
    /// Returns the interval in the form of the rule file.
    pub(super) fn show(&self) -> String {
        self.calendar.map_or_else(|| Millis::show(self.millis), |calendar| calendar.unit().name().to_owned())
    }

    /// Returns the quota with this rate and the algorithm of the limit. Other algorithms than `gcra`, which can replace a
    /// token bucket, ignore `burst`.
    pub(super) fn quota(&self, present: &Quota, rate: u32, burst: Option<u32>) -> Option<Quota> {
        let algorithm = match present.algorithm() {
            Algorithm::TokenBucket => burst.map_or(Algorithm::TokenBucket, |burst| Algorithm::Gcra { burst }),
            Algorithm::Redisson(_) => Algorithm::TokenBucket,
            Algorithm::Gcra { .. } => Algorithm::Gcra { burst: burst.unwrap_or(rate) },
            Algorithm::GcraWarmUp(warm_up) => Algorithm::GcraWarmUp(WarmUp { burst: burst.unwrap_or(rate), ..warm_up }),
            Algorithm::LeakyBucket(queue) => {
                // By default, the length of the queue is the rate.
                let length = if queue.length == present.rate() { rate } else { queue.length };
                Algorithm::LeakyBucket(Queue { length, ..queue })
            }
            Algorithm::SlidingWindow { segments } => Algorithm::SlidingWindow { segments },
            Algorithm::FixedWindow(_) => Algorithm::FixedWindow(self.calendar?),
        };
        Quota::new(rate.into(), self.millis, algorithm).ok()
    }
}

/// Returns the intervals for a limit with this quota, from the shortest to the longest.
pub(super) fn windows(present: &Quota) -> Vec<Window> {
    let mut windows: Vec<Window> = match present.algorithm() {
        Algorithm::FixedWindow(calendar) => {
            let units = UNITS.into_iter().filter(|unit| *unit != calendar.unit());
            let others = units.filter_map(|unit| Calendar::new(unit, calendar.zone()).ok());
            let window = |calendar: Calendar| Window { millis: calendar.unit().millis(), calendar: Some(calendar) };
            others.chain([calendar]).map(window).collect()
        }
        _ => {
            let own = Some(present.interval()).filter(|own| !present.is_adopted() && !INTERVALS.contains(own));
            INTERVALS.into_iter().chain(own).map(|millis| Window { millis, calendar: None }).collect()
        }
    };
    windows.sort_by_key(|window| window.millis);
    windows
}

/// Returns the algorithm of a quota in the form of the rule file. Returns `None` for a token bucket.
pub(super) fn algorithm(quota: &Quota) -> Option<&'static str> {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::Redisson(_) => None,
        Algorithm::Gcra { .. } | Algorithm::GcraWarmUp(_) => Some(AlgorithmName::Gcra.name()),
        algorithm => Some(algorithm.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_include_the_present_one() {
        let shown = |interval, algorithm| {
            let quota = Quota::new(5, interval, algorithm).expect("a quota");
            windows(&quota).iter().map(Window::show).collect::<Vec<_>>()
        };
        assert_eq!(shown(60_000, Algorithm::TokenBucket), ["1s", "10s", "1m", "10m", "1h"]);
        assert_eq!(shown(300_000, Algorithm::Gcra { burst: 2 }), ["1s", "10s", "1m", "5m", "10m", "1h"]);
        let week = Algorithm::FixedWindow(Calendar::utc(Unit::Week));
        assert_eq!(shown(1, week), ["second", "minute", "hour", "day", "week"]);
    }

    #[test]
    fn candidates_keep_the_algorithm_of_the_limit() {
        let quota = |algorithm, burst| {
            let present = Quota::new(5, 60_000, algorithm).expect("a quota");
            let windows = windows(&present);
            windows[1].quota(&present, 8, burst).map(|quota| (quota.rate(), quota.interval(), quota.algorithm()))
        };
        let segments = Algorithm::SlidingWindow { segments: 6 };
        let queue = |length| Algorithm::LeakyBucket(Queue { length, max_wait: 1_000 });
        let minutes = Algorithm::FixedWindow(Calendar::utc(Unit::Minute));
        assert_eq!(quota(segments, None), Some((8, 10_000, segments)));
        assert_eq!(quota(queue(5), None), Some((8, 10_000, queue(8))));
        assert_eq!(quota(queue(3), None), Some((8, 10_000, queue(3))));
        assert_eq!(quota(Algorithm::TokenBucket, Some(2)), Some((8, 10_000, Algorithm::Gcra { burst: 2 })));
        assert_eq!(quota(Algorithm::Gcra { burst: 7 }, None), Some((8, 10_000, Algorithm::Gcra { burst: 8 })));
        assert_eq!(quota(minutes, None), Some((8, 60_000, minutes)));
    }
}
