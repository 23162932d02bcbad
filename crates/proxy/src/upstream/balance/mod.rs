//! How requests are distributed to targets: pure functions of the candidates, a random number or the key of a request.

mod least_requests;
mod penalties;
mod rendezvous;
mod round_robin;
mod slow_start;

pub(super) use self::least_requests::least_requests;
pub(super) use self::penalties::{PENALTY, Penalties, penalty};
pub(super) use self::rendezvous::{hash, rendezvous};
pub(super) use self::round_robin::round_robin;
pub(super) use self::slow_start::{FULL_SHARE, share};

use std::sync::atomic::AtomicI64;

/// A target that a request may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'e> {
    /// The position in the list of targets.
    pub(super) position: usize,
    /// The weight, in thousandths. Never 0.
    pub(super) weight: u64,
    /// The requests in flight, and the recent failures.
    pub(super) load: u64,
    /// Identifies the target, equal in all gateways.
    pub(super) id: u64,
    /// The state of the target for round robin.
    pub(super) turn: &'e AtomicI64,
}

/// Mixes all bits of a number (the finalizer of SplitMix64).
pub(super) fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    static TURN: AtomicI64 = AtomicI64::new(0);

    /// Creates candidates with these weights and loads.
    pub(in crate::upstream) fn candidates(targets: &[(u64, u64)]) -> Vec<Candidate<'static>> {
        let candidate = |(position, (weight, load)): (usize, &(u64, u64))| {
            let id = hash(&[&position.to_be_bytes()]);
            Candidate { position, weight: weight * 1000, load: *load, id, turn: &TURN }
        };
        targets.iter().enumerate().map(candidate).collect()
    }
}
