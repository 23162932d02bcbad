//! A circuit breaker for a node that replies too slowly. It reads no clock: callers pass the time.

use std::time::Duration;

use tokio::time::Instant;

use tidegate_metrics::{BreakerGauge, GaugeGuard};

/// Replies are evaluated over a sliding window of ten segments: one second, or ten times the timeout if that is
/// longer. So the window also covers a few consecutive calls that take as long as they may.
const SEGMENTS: usize = 10;
const MIN_SEGMENT: Duration = Duration::from_millis(100);
/// The minimum number of replies in the window for a verdict.
const MIN_REPLIES: u32 = 8;
/// This number of consecutive probes that are not slow closes the breaker. On a network path that takes more than half
/// of the timeout, no probe is fast.
const MAX_PROBES: u32 = 3;

/// The timeout for reconnecting and for probes is eight times the timeout of a decision, within these bounds.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Evaluates the replies on a connection.
#[derive(Debug)]
pub(super) struct Breaker {
    timeout: Duration,
    start: Instant,
    /// The length of a segment.
    segment: Duration,
    segments: [WindowSegment; SEGMENTS],
    /// The number of consecutive probes that were not slow.
    not_slow: u32,
    gauge: BreakerGauge,
    /// Counts this breaker while it is open.
    open: Option<GaugeGuard>,
}

/// The replies of a time segment.
#[derive(Clone, Copy, Debug, Default)]
struct WindowSegment {
    number: u128,
    replies: u32,
    slow: u32,
    slow_for: Duration,
}

// === impl Breaker ===

impl Breaker {
    pub(super) fn new(timeout: Duration, now: Instant, gauge: BreakerGauge) -> Self {
        let (segment, segments) = (timeout.max(MIN_SEGMENT), Default::default());
        Self { timeout, start: now, segment, segments, not_slow: 0, gauge, open: None }
    }

    /// Records a reply. Returns why the breaker opens, if most of the recent replies were slow.
    pub(super) fn record_reply(&mut self, now: Instant, took: Duration) -> Option<String> {
        let number = now.duration_since(self.start).as_millis() / self.segment.as_millis();
        let segment = &mut self.segments[usize::try_from(number).unwrap_or_default() % SEGMENTS];
        if segment.number != number {
            *segment = WindowSegment { number, ..WindowSegment::default() };
        }
        segment.replies += 1;
        if is_slow(took, self.timeout) {
            segment.slow += 1;
            segment.slow_for += took;
            let cause = self.open_cause(number)?;
            self.open();
            return Some(cause);
        }
        None
    }

    /// Returns the timeout for reconnecting to an unreachable node and for probes. Bounded, since a network that was
    /// silent may have dropped the request.
    pub(super) fn probe_timeout(&self) -> Duration {
        (self.timeout * 8).clamp(MIN_PROBE_TIMEOUT, MAX_PROBE_TIMEOUT)
    }

    /// Records how long the reply to a probe took. Returns whether the node is usable, with the reason if it is not;
    /// `None` if another probe is needed.
    pub(super) fn record_probe(&mut self, took: Duration) -> Option<Result<(), String>> {
        if is_slow(took, self.timeout) {
            self.not_slow = 0;
            self.open();
            let (took, timeout) = (took.as_millis(), self.timeout.as_millis());
            return Some(Err(format!("slow: a PING takes {took} ms of {timeout} ms")));
        }
        self.not_slow += 1;
        (took * 2 <= self.timeout || self.not_slow >= MAX_PROBES).then(|| {
            (self.segments, self.not_slow) = Default::default();
            self.close();
            Ok(())
        })
    }

    /// Ends the time in which the connection is counted as too slow: it is used again, or no longer needed.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    fn open(&mut self) {
        self.open.get_or_insert_with(|| self.gauge.open());
    }

    fn open_cause(&self, number: u128) -> Option<String> {
        let recent = self.segments.iter().filter(|segment| segment.number + SEGMENTS as u128 > number);
        let (mut replies, mut slow, mut slow_for) = (0, 0, Duration::ZERO);
        for segment in recent {
            (replies, slow, slow_for) = (replies + segment.replies, slow + segment.slow, slow_for + segment.slow_for);
        }
        let is_open = replies >= MIN_REPLIES && slow * 2 > replies;
        let (mean, timeout) = ((slow_for / slow.max(1)).as_millis(), self.timeout.as_millis());
        is_open.then(|| format!("slow: replies take {mean} ms of {timeout} ms"))
    }
}

/// Returns `true` if a reply took more than four fifths of the timeout.
fn is_slow(took: Duration, timeout: Duration) -> bool {
    took * 5 > timeout * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_metrics::Metrics;

    const TIMEOUT: Duration = Duration::from_millis(50);

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns after how many replies the breaker opens, and its cause. There is a reply every `every` milliseconds.
    fn opens_after(every: u64, took: impl Fn(u32) -> u64) -> Option<(u32, String)> {
        let start = Instant::now();
        let mut breaker = Breaker::new(TIMEOUT, start, BreakerGauge::default());
        (1..=500_u32).find_map(|number| {
            let now = start + millis(every) * number;
            breaker.record_reply(now, millis(took(number))).map(|open_cause| (number, open_cause))
        })
    }

    #[test]
    fn mostly_slow_replies_open_it() {
        let (number, open_cause) = opens_after(20, |_| 47).expect("open");
        assert_eq!((number, open_cause.as_str()), (8, "slow: replies take 47 ms of 50 ms"));
        // The last three of five replies are slow.
        assert_eq!(opens_after(1, |number| if number % 5 > 1 { 41 } else { 1 }).map(|(number, _)| number), Some(8));
    }

    #[test]
    fn consecutive_slow_replies_open_it_at_any_timeout() {
        for timeout in [50, 300, 2_000] {
            let start = Instant::now();
            let mut breaker = Breaker::new(millis(timeout), start, BreakerGauge::default());
            let took = millis(timeout * 9 / 10);
            let opens = (1..=20).find(|number| breaker.record_reply(start + took * *number, took).is_some());
            assert_eq!(opens, Some(8), "{timeout} ms");
        }
    }

    #[test]
    fn open_breaker_is_counted_until_a_probe_is_fast() {
        let (metrics, start) = (Metrics::new(), Instant::now());
        let mut breaker = Breaker::new(TIMEOUT, start, metrics.open_breakers());
        let is_counted = || metrics.render().contains("tidegate_store_open_breakers 1\n");
        (1..8).for_each(|number| assert_eq!(breaker.record_reply(start + millis(number), millis(47)), None));
        assert!(!is_counted());
        assert!(breaker.record_reply(start + millis(8), millis(47)).is_some());
        assert!(is_counted());
        assert_eq!(breaker.record_probe(millis(5)), Some(Ok(())));
        assert!(!is_counted());
        assert!(breaker.record_probe(millis(47)).is_some_and(|verdict| verdict.is_err()));
        assert!(is_counted());
        drop(breaker);
        assert!(!is_counted());
    }

    #[test]
    fn few_or_fast_replies_leave_it_closed() {
        assert_eq!(opens_after(150, |_| 49), None, "seven in a second");
        assert_eq!(opens_after(1, |_| 40), None, "four fifths of the timeout");
        assert_eq!(opens_after(1, |number| if number % 2 == 0 { 49 } else { 1 }), None, "half of them");
    }

    #[test]
    fn slow_replies_count_for_one_second() {
        let start = Instant::now();
        let mut breaker = Breaker::new(TIMEOUT, start, BreakerGauge::default());
        for number in 0..7 {
            assert_eq!(breaker.record_reply(start + millis(number), millis(49)), None);
        }
        assert_eq!(breaker.record_reply(start + millis(1_000), millis(49)), None);
    }

    #[test]
    fn fast_probe_closes_it_and_clears_the_window() {
        let start = Instant::now();
        let mut breaker = Breaker::new(TIMEOUT, start, BreakerGauge::default());
        for number in 0..7 {
            assert_eq!(breaker.record_reply(start + millis(number), millis(49)), None);
        }
        let slow = "slow: a PING takes 47 ms of 50 ms".to_owned();
        assert_eq!(breaker.record_probe(millis(47)), Some(Err(slow)));
        assert_eq!(breaker.record_probe(millis(25)), Some(Ok(())));
        assert_eq!(breaker.record_reply(start + millis(10), millis(49)), None);
    }

    #[test]
    fn three_probes_that_are_not_slow_close_it() {
        let mut breaker = Breaker::new(TIMEOUT, Instant::now(), BreakerGauge::default());
        let closes =
            [30, 30, 45, 30, 30, 30].map(|took| breaker.record_probe(millis(took)).map(|verdict| verdict.is_ok()));
        assert_eq!(closes, [None, None, Some(false), None, None, Some(true)]);
    }
}
