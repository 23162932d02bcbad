//! When a node that replies is too slow to be asked, and when it is fast enough again.
//!
//! It reads no clock: whoever asks tells the time.

use std::time::Duration;

use tokio::time::Instant;

/// Answers are judged over the last second, or over ten times the timeout if that is longer, in tenths of it: so few calls
/// in a row that each take as long as they may are judged, too.
const SEGMENTS: usize = 10;
const MIN_SEGMENT: Duration = Duration::from_millis(100);
/// The fewest replies that are judged.
const MIN_REPLIES: u32 = 8;
/// So many probes in a row that are merely not slow end an outage, too: where the way to a node takes more than half of the
/// timeout, no probe is faster.
const MAX_PROBES: u32 = 3;

/// An attempt to connect to a node that was away may take eight times the timeout, within these bounds.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Judges the replies on a connection.
#[derive(Debug)]
pub(super) struct Breaker {
    timeout: Duration,
    start: Instant,
    /// The length of a segment.
    segment: Duration,
    segments: [WindowSegment; SEGMENTS],
    /// Probes in a row that were not slow.
    not_slow: u32,
}

/// The replies of a segment of time, and those of them that were slow.
#[derive(Clone, Copy, Debug, Default)]
struct WindowSegment {
    number: u128,
    replies: u32,
    slow: u32,
    slow_for: Duration,
}

// === impl Breaker ===

impl Breaker {
    pub(super) fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, start: now, segment: timeout.max(MIN_SEGMENT), segments: Default::default(), not_slow: 0 }
    }

    /// Notes an answer; says why nobody is to be asked any more, if most of late were slow.
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
            return self.open_cause(number);
        }
        None
    }

    /// How long to wait for the replies to an attempt to connect to a node that was away, and to a probe. What was sent
    /// while the network was silent is not answered any more.
    pub(super) fn probe_timeout(&self) -> Duration {
        (self.timeout * 8).clamp(MIN_PROBE_TIMEOUT, MAX_PROBE_TIMEOUT)
    }

    /// Notes how long the answer to a probe took. Says that the node can be asked again, or why it cannot; nothing if another
    /// probe is to show that.
    pub(super) fn record_probe(&mut self, took: Duration) -> Option<Result<(), String>> {
        if is_slow(took, self.timeout) {
            self.not_slow = 0;
            let (took, timeout) = (took.as_millis(), self.timeout.as_millis());
            return Some(Err(format!("slow: a PING takes {took} ms of {timeout} ms")));
        }
        self.not_slow += 1;
        (took * 2 <= self.timeout || self.not_slow >= MAX_PROBES).then(|| {
            (self.segments, self.not_slow) = Default::default();
            Ok(())
        })
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

/// More than four fifths of the timeout.
fn is_slow(took: Duration, timeout: Duration) -> bool {
    took * 5 > timeout * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// After how many replies of these kinds, one every so many milliseconds, it opens.
    fn opens_after(every: u64, took: impl Fn(u32) -> u64) -> Option<(u32, String)> {
        let start = Instant::now();
        let mut breaker = Breaker::new(TIMEOUT, start);
        (1..=500_u32).find_map(|number| {
            let now = start + millis(every) * number;
            breaker.record_reply(now, millis(took(number))).map(|open_cause| (number, open_cause))
        })
    }

    #[test]
    fn eight_answers_in_a_second_of_which_most_are_slow_open_it() {
        let (number, open_cause) = opens_after(20, |_| 47).expect("open");
        assert_eq!((number, open_cause.as_str()), (8, "slow: replies take 47 ms of 50 ms"));
        // The last three of five are slow.
        assert_eq!(opens_after(1, |number| if number % 5 > 1 { 41 } else { 1 }).map(|(number, _)| number), Some(8));
    }

    #[test]
    fn a_single_asker_whose_every_answer_is_slow_opens_it_however_long_the_timeout_is() {
        for timeout in [50, 300, 2_000] {
            let start = Instant::now();
            let mut breaker = Breaker::new(millis(timeout), start);
            let took = millis(timeout * 9 / 10);
            let opens = (1..=20).find(|number| breaker.record_reply(start + took * *number, took).is_some());
            assert_eq!(opens, Some(8), "{timeout} ms");
        }
    }

    #[test]
    fn answers_that_are_few_or_fast_or_of_which_half_are_slow_leave_it_closed() {
        assert_eq!(opens_after(150, |_| 49), None, "seven in a second");
        assert_eq!(opens_after(1, |_| 40), None, "four fifths of the timeout");
        assert_eq!(opens_after(1, |number| if number % 2 == 0 { 49 } else { 1 }), None, "half of them");
    }

    #[test]
    fn what_was_slow_more_than_a_second_ago_is_forgotten() {
        let start = Instant::now();
        let mut breaker = Breaker::new(TIMEOUT, start);
        for number in 0..7 {
            assert_eq!(breaker.record_reply(start + millis(number), millis(49)), None);
        }
        assert_eq!(breaker.record_reply(start + millis(1_000), millis(49)), None);
    }

    #[test]
    fn a_probe_within_half_of_the_timeout_closes_it_and_the_past_is_forgotten() {
        let start = Instant::now();
        let mut breaker = Breaker::new(TIMEOUT, start);
        for number in 0..7 {
            assert_eq!(breaker.record_reply(start + millis(number), millis(49)), None);
        }
        let slow = "slow: a PING takes 47 ms of 50 ms".to_owned();
        assert_eq!(breaker.record_probe(millis(47)), Some(Err(slow)));
        assert_eq!(breaker.record_probe(millis(25)), Some(Ok(())));
        assert_eq!(breaker.record_reply(start + millis(10), millis(49)), None);
    }

    #[test]
    fn three_probes_in_a_row_that_are_not_slow_close_it_where_none_is_fast() {
        let mut breaker = Breaker::new(TIMEOUT, Instant::now());
        let closes = [30, 30, 45, 30, 30, 30].map(|took| breaker.record_probe(millis(took)).map(|it| it.is_ok()));
        assert_eq!(closes, [None, None, Some(false), None, None, Some(true)]);
    }
}
