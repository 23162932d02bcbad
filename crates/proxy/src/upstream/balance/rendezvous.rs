//! Weighted rendezvous hashing: equal keys go to the same target, in all gateways, and only the keys of a target that
//! comes or goes move.

use super::{Candidate, mix};

/// Selects the candidate with the highest score for this key. Returns `None` without candidates.
pub(in crate::upstream) fn rendezvous<'c, 'e>(candidates: &'c [Candidate<'e>], key: u64) -> Option<&'c Candidate<'e>> {
    candidates.iter().max_by(|one, other| score(one, key).total_cmp(&score(other, key)))
}

/// Returns the score of a target: with uniform hashes, it is the highest with a probability in proportion to its weight.
fn score(candidate: &Candidate<'_>, key: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "52 bits are exact, and weights are small")]
    let (uniform, weight) =
        (((mix(key ^ candidate.id) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64, candidate.weight as f64);
    weight / -uniform.ln()
}

/// Hashes parts of a key (FNV-1a). The result is the same in all gateways and versions.
pub(in crate::upstream) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.iter().chain(&[0xff])) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::upstream::balance::testing::candidates;

    fn selected(candidates: &[Candidate<'_>], key: u64) -> usize {
        rendezvous(candidates, hash(&[&key.to_be_bytes()])).expect("a candidate").position
    }

    proptest! {
        #[test]
        fn only_keys_of_a_removed_target_move(weights in prop::collection::vec(1_u64..10, 2..12), gone: prop::sample::Index) {
            let all = candidates(&weights.iter().map(|weight| (*weight, 0)).collect::<Vec<_>>());
            let gone = gone.index(all.len());
            let rest: Vec<_> = all.iter().copied().filter(|candidate| candidate.position != gone).collect();
            let total: u64 = weights.iter().sum();
            let mut moved = 0_u64;
            for key in 0..2000 {
                let before = selected(&all, key);
                if before == gone {
                    moved += 1;
                } else {
                    prop_assert_eq!(selected(&rest, key), before);
                }
            }
            // The keys of the target are its part of the weight. 2,000 keys deviate by less than 100 (9 sigma).
            prop_assert!(moved.abs_diff(2000 * weights[gone] / total) < 100, "{} of {:?}", moved, weights);
        }
    }

    #[test]
    fn hashes_depend_on_the_bounds_of_parts() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[b"key"]), hash(&[b"key"]));
    }
}
