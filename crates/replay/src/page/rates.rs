//! The effect of other rates, from the curve of a limit.

use crate::report::LimitReport;
use crate::report::curve::{CurvePoint, bounds};
use crate::report::ranks::RankPoint;

/// A rate that readers of the page can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) rate: u32,
    /// The clients that need more permits in an interval; for an OVERALL limit, the intervals.
    pub(super) above: u64,
    /// The permits beyond the rate.
    pub(super) permits: u64,
    /// Whether the counts are interpolated: the curve merges the demands between two bounds.
    pub(super) is_approximate: bool,
}

/// Returns rates from 1 to the largest demand, or to the rate of the limit if that is larger, with distances of at most 6 %.
/// The rate of the limit is one of them.
pub(super) fn candidates(limit: &LimitReport) -> Vec<Candidate> {
    let largest = limit.curve.last().map_or(1, |point| point.rate).max(limit.rate);
    let mut candidates = Vec::new();
    let mut last = 0;
    for bound in bounds(largest) {
        if limit.rate > last && limit.rate < bound {
            candidates.push(between(limit, last, bound));
        }
        if bound > 0 {
            candidates.push(at(limit, bound));
        }
        last = bound;
    }
    candidates
}

/// Returns the counts at the bound of a bucket, which are exact.
fn at(limit: &LimitReport, rate: u32) -> Candidate {
    let below = limit.curve.partition_point(|point| point.rate <= rate);
    let Some(point) = below.checked_sub(1).and_then(|position| limit.curve.get(position)) else {
        return Candidate { rate, above: 0, permits: 0, is_approximate: false };
    };
    let distance = u64::from(rate - point.rate);
    let permits = point.requests.saturating_sub(distance.saturating_mul(point.intervals));
    Candidate { rate, above: subjects(limit, point), permits, is_approximate: false }
}

/// Returns the counts at the rate of the limit, between two bounds.
fn between(limit: &LimitReport, low: u32, high: u32) -> Candidate {
    let (lower, upper) = (at(limit, low), at(limit, high));
    let (distance, width) = (u64::from(limit.rate - low), u64::from(high - low));
    let share = |from: u64, to: u64| {
        let fall = u128::from(from - to) * u128::from(distance) / u128::from(width);
        from - u64::try_from(fall).unwrap_or(0)
    };
    Candidate {
        rate: limit.rate,
        above: share(lower.above, upper.above),
        permits: share(lower.permits, upper.permits),
        is_approximate: limit.curve.iter().any(|point| point.rate == high),
    }
}

/// Returns the clients of a point, or its intervals.
fn subjects(limit: &LimitReport, point: &CurvePoint) -> u64 {
    if is_overall(limit) { point.intervals } else { point.clients }
}

pub(super) fn is_overall(limit: &LimitReport) -> bool {
    limit.mode == "OVERALL"
}

/// Returns the sorted demands: of the clients, or for an OVERALL limit of the intervals, and their number.
pub(super) fn sorted(limit: &LimitReport) -> (Vec<RankPoint>, u64) {
    if !is_overall(limit) {
        return (limit.ranks.clone(), limit.ranks.last().map_or(0, |point| point.rank));
    }
    let pairs = limit.curve.windows(2).rev();
    let points = pairs.filter(|pair| pair[0].intervals > pair[1].intervals);
    let points = points.map(|pair| RankPoint { rank: pair[1].intervals + 1, demand: pair[1].rate });
    (points.collect(), limit.curve.first().map_or(0, |point| point.intervals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::limit;

    #[test]
    fn candidates_have_the_counts_of_the_curve() {
        let limit = limit("PER_CLIENT", 4, &[2, 5, 5, 30]);
        let found: Vec<_> =
            candidates(&limit).iter().map(|candidate| (candidate.rate, candidate.above, candidate.permits)).collect();
        assert_eq!(found[..6], [(1, 4, 38), (2, 3, 34), (3, 3, 31), (4, 3, 28), (5, 1, 25), (6, 1, 24)]);
        assert_eq!((found.len(), found[29]), (30, (30, 0, 0)));
    }

    #[test]
    fn rate_of_the_limit_is_a_candidate() {
        for (rate, approximate) in [(1, false), (20, false), (1_000, true), (1_023, false), (70_000, false)] {
            let limit = limit("PER_CLIENT", rate, &[3, 999, 1_001]);
            let all = candidates(&limit);
            let found = all.iter().find(|candidate| candidate.rate == rate).unwrap();
            assert_eq!(found.is_approximate, approximate, "{found:?}");
            assert!(all.windows(2).all(|pair| pair[0].rate < pair[1].rate && pair[0].permits >= pair[1].permits));
            assert!(all.len() < 500);
        }
    }

    #[test]
    fn intervals_of_overall_limits_are_sorted() {
        let (points, count) = sorted(&limit("OVERALL", 4, &[2, 5, 5, 30]));
        let points: Vec<_> = points.iter().map(|point| (point.rank, point.demand)).collect();
        assert_eq!((points, count), (vec![(1, 30), (2, 5), (4, 2)], 4));
    }
}
