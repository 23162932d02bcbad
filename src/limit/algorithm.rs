//! The differences between the algorithms, except for their decisions.

use super::leaky_bucket::Queue;
use super::{Algorithm, MAX_RATE, Quota};

impl Quota {
    /// Returns this quota with other numbers of permits. `permits` converts the rate and the burst, and `queue` the length of
    /// the queue. The new rate and burst are at least 1 and at most [`MAX_RATE`].
    #[must_use]
    pub(crate) fn scaled(&self, permits: impl Fn(u32) -> u32, queue: impl Fn(u32) -> u32) -> Self {
        let permits = |before: u32| permits(before).clamp(1, MAX_RATE);
        let algorithm = match self.algorithm {
            Algorithm::Gcra { burst } => Algorithm::Gcra { burst: permits(burst) },
            Algorithm::LeakyBucket(Queue { length, max_wait }) => {
                Algorithm::LeakyBucket(Queue { length: queue(length), max_wait })
            }
            same @ (Algorithm::TokenBucket
            | Algorithm::SlidingWindow { .. }
            | Algorithm::FixedWindow(_)
            | Algorithm::Redisson(_)) => same,
        };
        Self { rate: permits(self.rate), algorithm, ..*self }
    }
}
