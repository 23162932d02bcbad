//! Round robin over the targets of an upstream. After a failure the following targets are tried, once each.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of the next request.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin(AtomicUsize);

impl RoundRobin {
    /// Returns the order in which a request tries `count` targets.
    pub(crate) fn next(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let first = if count > 1 { self.0.fetch_add(1, Ordering::Relaxed) } else { 0 };
        (0..count).map(move |step| first.wrapping_add(step) % count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(round_robin: &RoundRobin, count: usize) -> Vec<usize> {
        round_robin.next(count).collect()
    }

    #[test]
    fn each_target_is_first_in_turn() {
        let round_robin = RoundRobin::default();
        assert_eq!(order(&round_robin, 3), [0, 1, 2]);
        assert_eq!(order(&round_robin, 3), [1, 2, 0]);
        assert_eq!(order(&round_robin, 3), [2, 0, 1]);
        assert_eq!(order(&round_robin, 3), [0, 1, 2]);
    }

    #[test]
    fn order_of_one_target_or_none_is_constant() {
        let round_robin = RoundRobin::default();
        assert_eq!(order(&round_robin, 1), [0]);
        assert_eq!(order(&round_robin, 1), [0]);
        assert_eq!(order(&round_robin, 0), [0; 0]);
    }
}
