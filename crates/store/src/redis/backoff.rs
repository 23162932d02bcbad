//! Pauses between attempts to connect.

use std::time::Duration;

use tidegate_limit::random::random;

const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(400);
/// After a connection that lasted this long, the pauses start again at zero.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// If a connection that was used for this long is closed, the server is most likely up: an operator or a proxy has
/// closed the connection.
const USABLE_AFTER: Duration = Duration::from_millis(100);

/// Pauses between attempts to connect. They grow until a connection lasts.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Returns the pause after a failed attempt.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.next = self.next.max(MIN_PAUSE);
        self.step()
    }

    /// Returns the pause after a connection has ended: zero after the first short one.
    pub(super) fn after_connection(&mut self, lasted: Duration) -> Duration {
        if lasted >= STABLE_AFTER {
            self.next = Duration::ZERO;
        }
        self.step()
    }

    /// Returns the pause after Redis or the network has closed a connection.
    pub(super) fn after_close(&mut self, lasted: Duration) -> Duration {
        if lasted >= USABLE_AFTER { Duration::ZERO } else { self.after_connection(lasted) }
    }

    fn step(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        pause
    }
}

/// Returns a random duration from half of the pause to all of it, so that gateways do not reconnect at the same time.
pub(super) fn jittered(pause: Duration) -> Duration {
    let [byte] = random();
    pause / 2 + pause * u32::from(byte) / 512
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
