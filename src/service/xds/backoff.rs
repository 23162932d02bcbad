//! Pauses between attempts. They grow, and are random, so that gateways do not repeat their attempts at the same time.

use std::time::Duration;

use tidegate_limit::random::random;

/// Pauses that double up to a bound.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

/// The first pause.
const MIN: Duration = Duration::from_secs(1);

impl Backoff {
    /// Starts with pauses of at most 1 s, which grow up to `max`.
    pub(super) fn up_to(max: Duration) -> Self {
        Self { next: MIN, max }
    }

    /// Returns the next pause: from half of the bound to all of it.
    pub(super) fn pause(&mut self) -> Duration {
        let [byte] = random();
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause / 2 + pause * u32::from(byte) / 510
    }

    /// Starts again.
    pub(super) fn reset(&mut self) {
        self.next = MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound() {
        let mut backoff = Backoff::up_to(Duration::from_secs(5));
        for bound in [1, 2, 4, 5, 5].map(Duration::from_secs) {
            let pause = backoff.pause();
            assert!((bound / 2..=bound).contains(&pause), "{pause:?} of {bound:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= MIN);
    }
}
