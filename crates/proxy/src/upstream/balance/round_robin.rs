//! Smooth weighted round robin, as in nginx: a target with weight 3 is selected three times in a cycle, but not three
//! times in a row.

use std::sync::atomic::Ordering::Relaxed;

use super::Candidate;

/// Selects the candidate with the next turn. Returns `None` without candidates.
///
/// Each candidate gains its weight, and the selected one loses the weight of all. The turns belong to one worker.
/// Another thread can only disturb the order.
pub(in crate::upstream) fn round_robin<'c, 'e>(candidates: &'c [Candidate<'e>]) -> Option<&'c Candidate<'e>> {
    let (mut best, mut total) = (None, 0);
    for candidate in candidates {
        let weight = i64::try_from(candidate.weight).unwrap_or(i64::MAX);
        let turn = candidate.turn.load(Relaxed) + weight;
        candidate.turn.store(turn, Relaxed);
        total += weight;
        if best.is_none_or(|(_, highest)| turn > highest) {
            best = Some((candidate, turn));
        }
    }
    let (candidate, turn) = best?;
    candidate.turn.store(turn - total, Relaxed);
    Some(candidate)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;
    use crate::upstream::balance::testing;

    fn order(weights: &[u64], requests: usize) -> Vec<usize> {
        let turns: Vec<_> = weights.iter().map(|_| AtomicI64::new(0)).collect();
        let targets: Vec<_> = weights.iter().map(|weight| (*weight, 0)).collect();
        let mut candidates = testing::candidates(&targets);
        candidates.iter_mut().zip(&turns).for_each(|(candidate, turn)| candidate.turn = turn);
        (0..requests).map(|_| round_robin(&candidates).expect("a candidate").position).collect()
    }

    #[test]
    fn equal_targets_take_turns() {
        assert_eq!(order(&[1, 1, 1], 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn heavy_target_is_not_selected_in_a_row() {
        assert_eq!(order(&[5, 1, 1], 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn no_candidate_is_selected_from_none() {
        assert!(round_robin(&[]).is_none());
        assert_eq!(order(&[9], 2), [0, 0]);
    }
}
