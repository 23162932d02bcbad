//! How long to wait between attempts.

use std::time::Duration;

const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(400);
/// A connection that has worked for so long is no attempt any more.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// The backoff between attempts to connect. They grow until a connection lasts.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The pause after an attempt that failed.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.next = self.next.max(MIN_PAUSE);
        self.step()
    }

    /// The pause after a connection that has ended: none for the first that did not last.
    pub(super) fn after_connection(&mut self, lasted: Duration) -> Duration {
        if lasted >= STABLE_AFTER {
            self.next = Duration::ZERO;
        }
        self.step()
    }

    fn step(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        pause
    }
}

/// Half to all of the pause, so that many gateways do not come back at the same moment.
pub(super) fn jittered(pause: Duration) -> Duration {
    let mut byte = [0; 1];
    _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pauses_grow_until_a_connection_lasts_five_seconds() {
        let mut backoff = Backoff::default();
        let short = [0, 50, 100, 200, 400, 400, 400].map(millis);
        assert_eq!([0; 7].map(|_| backoff.after_connection(millis(4_999))), short);
        assert_eq!([0, 1].map(|_| backoff.after_failure()), [millis(400); 2]);
        assert_eq!(backoff.after_connection(millis(5_000)), Duration::ZERO);
        assert_eq!([0, 1].map(|_| backoff.after_failure()), [50, 100].map(millis));
        assert_eq!(Backoff::default().after_failure(), millis(50));
    }
}
