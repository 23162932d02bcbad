//! Which target is next: each in turn, and after a failure the ones that follow, once each.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin(AtomicUsize);

impl RoundRobin {
    /// The order in which this request tries `count` targets.
    pub(crate) fn next(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let turn = if count > 1 { self.0.fetch_add(1, Ordering::Relaxed) } else { 0 };
        (0..count).map(move |step| turn.wrapping_add(step) % count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turn: &RoundRobin, count: usize) -> Vec<usize> {
        turn.next(count).collect()
    }

    #[test]
    fn each_target_has_its_turn_and_the_others_stand_in_for_it_once_each() {
        let turn = RoundRobin::default();
        assert_eq!(order(&turn, 3), [0, 1, 2]);
        assert_eq!(order(&turn, 3), [1, 2, 0]);
        assert_eq!(order(&turn, 3), [2, 0, 1]);
        assert_eq!(order(&turn, 3), [0, 1, 2]);
    }

    #[test]
    fn one_target_is_always_its_own_turn_and_no_target_is_nobodys() {
        let turn = RoundRobin::default();
        assert_eq!(order(&turn, 1), [0]);
        assert_eq!(order(&turn, 1), [0]);
        assert_eq!(order(&turn, 0), [0; 0]);
    }
}
