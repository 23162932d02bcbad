//! The power of two random choices: of two random targets, the one with fewer requests in flight for its weight.
//!
//! Unlike the target with the fewest requests of all, this choice does not send all workers to the same target, and it
//! needs no order of the targets.

use super::{Candidate, mix};

/// Selects a candidate. Returns `None` without candidates.
pub(in crate::upstream) fn least_requests<'c, 'e>(
    candidates: &'c [Candidate<'e>],
    random: u64,
) -> Option<&'c Candidate<'e>> {
    let first = weighted(candidates, None, random)?;
    let Some(second) = weighted(candidates, Some(first.position), mix(random)) else { return Some(first) };
    // Equal loads select the first one, whose probability is its weight. So idle targets share by weight, too.
    let loads = |one: &Candidate<'_>, other: &Candidate<'_>| u128::from(one.load) * u128::from(other.weight);
    Some(if loads(second, first) < loads(first, second) { second } else { first })
}

/// Selects one of the candidates by their weights, but not the one at the position `except`.
fn weighted<'c, 'e>(candidates: &'c [Candidate<'e>], except: Option<usize>, random: u64) -> Option<&'c Candidate<'e>> {
    let others = || candidates.iter().filter(|candidate| Some(candidate.position) != except);
    let total: u64 = others().map(|candidate| candidate.weight).sum();
    let scaled = (u128::from(random) * u128::from(total)) >> 64;
    let mut point = u64::try_from(scaled).unwrap_or(0);
    others().find(|candidate| match point.checked_sub(candidate.weight) {
        Some(rest) => {
            point = rest;
            false
        }
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::candidates;

    /// Returns how many of 10,000 requests each candidate gets.
    fn shares(targets: &[(u64, u64)]) -> Vec<u32> {
        let candidates = candidates(targets);
        let mut shares = vec![0; candidates.len()];
        for number in 0..10_000 {
            let selected = least_requests(&candidates, mix(number)).expect("a candidate");
            shares[selected.position] += 1;
        }
        shares
    }

    fn assert_near(actual: u32, expected: u32) {
        assert!(actual.abs_diff(expected) < 300, "{actual}, expected {expected}");
    }

    #[test]
    fn idle_targets_share_by_weight() {
        let shares = shares(&[(1, 0), (3, 0)]);
        assert_near(shares[0], 2500);
        assert_near(shares[1], 7500);
    }

    #[test]
    fn busier_of_two_targets_gets_nothing() {
        assert_eq!(shares(&[(1, 2), (1, 1)]), [0, 10_000]);
        assert_eq!(shares(&[(1, 2), (3, 5)]), [0, 10_000]);
        assert_eq!(shares(&[(1, 1), (3, 4)]), [10_000, 0]);
    }

    #[test]
    fn busiest_of_many_targets_gets_nothing() {
        let shares = shares(&[(1, 0), (1, 9), (1, 0), (1, 0)]);
        assert_eq!(shares[1], 0);
        assert_near(shares[0], 3333);
    }

    #[test]
    fn only_candidate_is_selected() {
        assert_eq!(shares(&[(7, 100)]), [10_000]);
        assert!(least_requests(&[], 0).is_none());
        for random in [0, u64::MAX] {
            assert!(least_requests(&candidates(&[(1, 0), (1_000_000, 0)]), random).is_some());
        }
    }
}
