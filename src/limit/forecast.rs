//! What a quota allows, computed from its numbers alone.

use super::{Algorithm, Quota, State, Wait};
use crate::clock::Timestamp;

impl Algorithm {
    /// Its law in a few words.
    pub fn law(&self) -> &'static str {
        match self {
            Self::TokenBucket => "a permit comes back exactly one interval after it was granted",
            Self::Gcra { .. } => "permits come back continuously, one by one, until the burst is full",
            Self::LeakyBucket(_) => "requests go on at an even distance, in the order in which they came",
            Self::FixedWindow(_) => "all permits come back when a window of the calendar ends",
            Self::SlidingWindow { .. } => "a permit comes back one interval after its segment has ended",
            Self::Foreign(_) => "a permit comes back exactly one interval after it was granted, shared with Redisson",
        }
    }
}

impl Quota {
    /// The most that one bucket can grant in any window of one interval.
    pub fn worst_case(&self) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra { burst } => u64::from(self.rate()) + u64::from(burst),
            // A whole window's permits just before the boundary, and as many just after it.
            Algorithm::FixedWindow(_) => 2 * u64::from(self.rate()),
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow { .. }
            | Algorithm::Foreign(_) => u64::from(self.rate()),
        }
    }

    /// What an unused bucket holds: the most that can ever be left.
    pub fn full(&self) -> u32 {
        State::EMPTY.check(self, 0, Timestamp::default()).remaining
    }

    /// The milliseconds in which as many permits come as an unused bucket holds, rounded up.
    pub fn refill(&self) -> u64 {
        let parts = u128::from(self.full()) * u128::from(self.interval());
        u64::try_from(parts.div_ceil(self.rate().into())).unwrap_or(u64::MAX)
    }

    /// How long a request for so many permits waits for a bucket from which all were taken at once.
    pub fn wait_when_drained(&self, permits: u32) -> Wait {
        let (mut state, now) = (State::EMPTY, Timestamp::default());
        let all = state.check(self, 0, now).remaining;
        state.charge(self, all, now);
        state.check(self, permits, now).wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::leaky_bucket::Queue;

    #[test]
    fn a_drained_bucket_lets_a_request_pass_when_its_permits_are_back() {
        let quota = Quota::new(5, 60_000, Algorithm::TokenBucket).expect("a quota");
        assert_eq!(quota.wait_when_drained(0), Wait::Now);
        assert_eq!(quota.wait_when_drained(1), Wait::Millis(60_000));
        assert_eq!(quota.wait_when_drained(6), Wait::Never);
    }

    #[test]
    fn what_an_unused_bucket_holds_is_not_always_the_rate() {
        let told = |algorithm| {
            let quota = Quota::new(6, 60_000, algorithm).expect("a quota");
            (quota.full(), quota.refill())
        };
        assert_eq!(told(Algorithm::TokenBucket), (6, 60_000));
        assert_eq!(told(Algorithm::Gcra { burst: 20 }), (20, 200_000));
        assert_eq!(told(Algorithm::Gcra { burst: 2 }), (2, 20_000));
        let queue = Queue { length: 3, max_wait: 600_000 };
        assert_eq!(told(Algorithm::LeakyBucket(queue)), (4, 40_000));
        assert_eq!(told(Algorithm::SlidingWindow { segments: 7 }), (6, 60_000));
    }
}
