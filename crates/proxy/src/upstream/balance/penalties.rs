//! Failed attempts, which count as requests in flight for a while. A target that fails fast has few requests in flight,
//! and would otherwise get most of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time that a failed attempt counts.
pub(in crate::upstream) const PENALTY: Duration = Duration::from_secs(1);

/// The longest time that a failed response counts if it has `Retry-After`.
const MAX_PENALTY: Duration = Duration::from_secs(5);

/// Failures that expire within this time of each other share an entry, which bounds the memory to about 50 entries.
const STEP: Duration = Duration::from_millis(100);

/// The recent failures of a target.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Penalties {
    /// The number of failures that count. While it is zero, requests read only this field.
    count: AtomicU64,
    /// When failures expire, and how many. Earliest first.
    ends: Mutex<VecDeque<(Instant, u64)>>,
}

impl Penalties {
    /// Counts a failure for this time.
    pub(in crate::upstream) fn add(&self, now: Instant, time: Duration) {
        let (end, mut ends) = (now + time, self.ends.lock());
        self.remove_ended(&mut ends, now); // nothing calls `count` for the only target of an upstream
        self.count.fetch_add(1, Relaxed);
        match ends.iter_mut().find(|(other, _)| *other <= end + STEP && end <= *other + STEP) {
            Some((_, count)) => *count += 1,
            None => {
                let position = ends.partition_point(|(other, _)| *other < end);
                ends.insert(position, (end, 1));
            }
        }
    }

    /// Returns the number of failures that count.
    pub(in crate::upstream) fn count(&self, now: Instant) -> u64 {
        if self.count.load(Relaxed) == 0 {
            return 0;
        }
        self.remove_ended(&mut self.ends.lock(), now);
        self.count.load(Relaxed)
    }

    fn remove_ended(&self, ends: &mut VecDeque<(Instant, u64)>, now: Instant) {
        let ended = ends.partition_point(|(end, _)| *end <= now);
        let count: u64 = ends.drain(..ended).map(|(_, count)| count).sum();
        self.count.fetch_sub(count, Relaxed);
    }
}

/// Returns how long a failed response with these fields counts: `Retry-After` in seconds, from 1 s to 5 s.
pub(in crate::upstream) fn penalty(fields: &HeaderMap) -> Duration {
    let text = fields.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = text.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Duration::from_secs(seconds).clamp(PENALTY, MAX_PENALTY)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn failure_counts_for_its_time() {
        let (penalties, start) = (Penalties::default(), Instant::now());
        assert_eq!(penalties.count(start), 0);
        penalties.add(start, 3 * PENALTY);
        penalties.add(start, PENALTY);
        penalties.add(start, PENALTY);
        assert_eq!(penalties.count(start), 3);
        assert_eq!(penalties.count(start + PENALTY), 1);
        assert_eq!(penalties.count(start + 3 * PENALTY), 0);
    }

    #[test]
    fn failures_share_a_bounded_number_of_entries() {
        let (penalties, start) = (Penalties::default(), Instant::now());
        for number in 0..10_000 {
            penalties.add(start, Duration::from_micros(500 * number + 1));
        }
        assert_eq!(penalties.count.load(Relaxed), 10_000);
        assert!(penalties.ends.lock().len() <= 51);
        assert_eq!(penalties.count(start + MAX_PENALTY + STEP), 0);
    }

    #[test]
    fn expired_failures_are_removed_by_later_ones() {
        let (penalties, start) = (Penalties::default(), Instant::now());
        for second in 0..1_000 {
            penalties.add(start + 2 * second * PENALTY, PENALTY);
        }
        assert_eq!((penalties.count.load(Relaxed), penalties.ends.lock().len()), (1, 1));
    }

    #[test]
    fn retry_after_lengthens_the_time() {
        let time = |value: &'static str| {
            penalty(&HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(value))]))
        };
        assert_eq!(penalty(&HeaderMap::new()), PENALTY);
        assert_eq!(time("0"), PENALTY);
        assert_eq!(time("3"), 3 * PENALTY);
        assert_eq!(time("60"), MAX_PENALTY);
        assert_eq!(time("18446744073709551615"), MAX_PENALTY);
        assert_eq!(time("Thu, 26 Nov 2026 00:00:00 GMT"), PENALTY);
    }
}
