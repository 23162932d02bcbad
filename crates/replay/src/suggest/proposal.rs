//! The choice between candidates.

use std::cmp::Reverse;

use super::candidate::Candidate;

/// The interval that is proposed without abusers, in milliseconds.
const DEFAULT_INTERVAL: u64 = 60_000;

/// The proposed candidate rejects at least this share of the abusers' requests that the best candidate rejects.
const GOOD_ENOUGH: f64 = 0.9;

/// Returns the position of the proposed candidate among those that reject at most the tolerated share of the other clients.
///
/// With abusers, these candidates have to reject at least 90 % of the abusers' requests that the best one rejects. The one
/// with the fewest other clients is proposed; of equal ones the present quota, or else the one with the shortest interval
/// and the highest rate. Without abusers, the candidate has the `present` interval of the limit in milliseconds, or else a
/// minute, and the lowest rate that rejects the fewest clients.
pub(super) fn propose(candidates: &[Candidate], present: u64, has_abusers: bool) -> usize {
    let all = || candidates.iter().enumerate();
    let acceptable = || all().filter(|(_, candidate)| candidate.acceptable);
    let best = acceptable().map(|(_, candidate)| candidate.abuser_requests).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let is_good = |candidate: &Candidate| candidate.abuser_requests as f64 >= best as f64 * GOOD_ENOUGH;
    let against_abusers = |(_, candidate): &(usize, &Candidate)| {
        let interval = candidate.quota.interval();
        (
            candidate.others,
            !candidate.present,
            candidate.algorithm_differs(candidates),
            interval,
            Reverse(candidate.rate),
        )
    };
    let without_abusers = |(_, candidate): &(usize, &Candidate)| {
        let interval = candidate.quota.interval();
        let (is_other, is_unusual) = (interval != present, interval != DEFAULT_INTERVAL);
        let differs = candidate.algorithm_differs(candidates);
        (is_other, is_other && is_unusual, differs, candidate.others, interval, candidate.rate)
    };
    let proposed = match has_abusers {
        true => acceptable().filter(|(_, candidate)| is_good(candidate)).min_by_key(against_abusers),
        false => acceptable().min_by_key(without_abusers),
    };
    let fewest = || all().min_by_key(|(_, candidate)| (candidate.others, candidate.quota.interval()));
    proposed.or_else(fewest).map_or(0, |(position, _)| position)
}

impl Candidate {
    /// Returns `true` if the limit would have another algorithm, or a burst of a shorter interval.
    fn algorithm_differs(&self, candidates: &[Self]) -> bool {
        let present = candidates.iter().find(|candidate| candidate.present);
        let algorithm = present.and_then(|present| present.algorithm);
        self.burst.is_some_and(|burst| burst != self.rate) || self.algorithm != algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::{Algorithm, Quota};

    fn candidate(rate: u64, interval: u64, others: u64, abuser_requests: u64) -> Candidate {
        Candidate {
            rate: u32::try_from(rate).expect("a rate"),
            interval: String::new(),
            algorithm: None,
            burst: None,
            present: false,
            clients: 0,
            client_share: 0.0,
            requests: 0,
            request_share: 0.0,
            abusers: 0,
            abuser_requests,
            others,
            acceptable: others < 100,
            quota: Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota"),
        }
    }

    #[test]
    fn fewest_other_clients_are_rejected() {
        let minute = candidate(4, 60_000, 61, 1_000);
        let ten_minutes = candidate(64, 600_000, 0, 950);
        let weak = candidate(20, 60_000, 0, 300);
        let harsh = candidate(1, 1_000, 500, 2_000);
        let all = [minute, weak, ten_minutes.clone(), harsh];
        assert_eq!(propose(&all, 60_000, true), 2);
        let twice = candidate(128, 600_000, 0, 910);
        let hour = candidate(128, 3_600_000, 0, 990);
        assert_eq!(propose(&[hour.clone(), ten_minutes.clone(), twice], 60_000, true), 2);
        let present = Candidate { present: true, ..hour };
        assert_eq!(propose(&[ten_minutes, present], 60_000, true), 1);
    }

    #[test]
    fn present_interval_is_proposed_without_abusers() {
        let all = [candidate(9, 1_000, 0, 0), candidate(9, 60_000, 5, 0), candidate(20, 60_000, 0, 0)];
        assert_eq!([1_000, 60_000, 5_000].map(|present| propose(&all, present, false)), [0, 2, 2]);
    }

    #[test]
    fn fewest_other_clients_are_rejected_if_none_is_acceptable() {
        assert_eq!(propose(&[candidate(1, 1_000, 300, 0), candidate(5, 1_000, 200, 0)], 1_000, true), 1);
    }
}
