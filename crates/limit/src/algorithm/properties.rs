//! The properties of the algorithms that other modules ask for. Each match names all variants, so that the compiler asks
//! these questions about a new algorithm.

use super::gcra::warm_up::WarmUp;
use super::leaky_bucket::Queue;
use super::{Algorithm, AlgorithmName};
use crate::calendar::Calendar;

impl AlgorithmName {
    /// Returns `true` if the algorithm assigns time slots, for which requests wait.
    #[doc(hidden)]
    pub const fn has_time_slots(self) -> bool {
        match self {
            Self::LeakyBucket => true,
            Self::TokenBucket | Self::Gcra | Self::FixedWindow | Self::SlidingWindow => false,
        }
    }
}

impl Algorithm {
    /// Returns the queue of the requests that wait for their time slots. Returns `None` for an algorithm without time
    /// slots.
    pub const fn queue(&self) -> Option<Queue> {
        match *self {
            Self::LeakyBucket(queue) => Some(queue),
            Self::TokenBucket
            | Self::Gcra { .. }
            | Self::GcraWarmUp(_)
            | Self::SlidingWindow { .. }
            | Self::FixedWindow(_)
            | Self::Redisson(_) => None,
        }
    }

    /// Returns `true` if the algorithm assigns time slots, for which requests wait.
    pub const fn has_time_slots(&self) -> bool {
        self.queue().is_some()
    }

    /// Returns the burst, which is the capacity of a bucket. Returns `None` if the rate is the capacity.
    pub const fn burst(&self) -> Option<u32> {
        match *self {
            Self::Gcra { burst } | Self::GcraWarmUp(WarmUp { burst, .. }) => Some(burst),
            Self::TokenBucket
            | Self::LeakyBucket(_)
            | Self::SlidingWindow { .. }
            | Self::FixedWindow(_)
            | Self::Redisson(_) => None,
        }
    }

    /// Returns the calendar that defines the windows, if there is one.
    pub const fn calendar(&self) -> Option<Calendar> {
        match *self {
            Self::FixedWindow(calendar) => Some(calendar),
            Self::TokenBucket
            | Self::Gcra { .. }
            | Self::GcraWarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingWindow { .. }
            | Self::Redisson(_) => None,
        }
    }

    /// Returns `true` if the permits in use are the grants of the last interval: each permit returns exactly one interval
    /// after its grant.
    pub const fn counts_the_last_interval(&self) -> bool {
        match self {
            Self::TokenBucket => true,
            // Java programs also use and release permits of a shared limiter.
            Self::Redisson(_)
            | Self::Gcra { .. }
            | Self::GcraWarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingWindow { .. }
            | Self::FixedWindow(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;

    #[test]
    fn names_and_algorithms_agree_on_time_slots() {
        let of_names = AlgorithmName::ALL.iter().filter(|name| name.has_time_slots()).map(|name| name.name());
        let with_queue = examples(5).filter(Algorithm::has_time_slots);
        assert!(of_names.eq(with_queue.map(|algorithm| algorithm.name())));
    }
}
