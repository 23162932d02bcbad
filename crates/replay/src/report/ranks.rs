//! The sorted demands of the clients of a limit, in a bounded number of points.

/// The number of ranks that are kept exactly.
const EXACT: usize = 100;

/// The maximum number of points.
const MAX_POINTS: usize = 500;

/// A client by the rank of its demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPoint {
    /// The rank: 1 for the client with the largest demand.
    pub rank: u64,
    /// The permits that the client needs.
    pub demand: u32,
}

/// Returns the demands in descending order: the first 100 ranks, a sample of the others with growing distances, and the
/// last rank. Demands of 0 are omitted.
pub(crate) fn ranks(mut demands: Vec<u32>) -> Vec<RankPoint> {
    demands.retain(|demand| *demand > 0);
    demands.sort_unstable_by(|left, right| right.cmp(left));
    let mut points = Vec::new();
    let mut next = 0.0;
    let steps = f64::from(u32::try_from(MAX_POINTS - EXACT - 1).unwrap_or(u32::MAX));
    let growth = (to_float(demands.len()) / to_float(EXACT)).max(1.0).powf(1.0 / steps);
    for (position, demand) in demands.iter().enumerate() {
        let is_last = position + 1 == demands.len();
        if position >= EXACT && to_float(position) < next && !is_last {
            continue;
        }
        next = (to_float(position) * growth).max(to_float(EXACT));
        points.push(RankPoint { rank: position as u64 + 1, demand: *demand });
    }
    points
}

#[expect(clippy::cast_precision_loss, reason = "a number of clients")]
fn to_float(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_ranks_are_exact_and_points_are_bounded() {
        for count in [0_u32, 1, 99, 100, 101, 450, 500, 501, 700, 5_000, 300_000] {
            let points = ranks((0..=count).collect());
            assert!(points.len() <= MAX_POINTS, "{count}: {}", points.len());
            assert_eq!(points.last().map(|point| point.rank), (count > 0).then_some(u64::from(count)));
            assert!(points.iter().all(|point| point.rank + u64::from(point.demand) == u64::from(count) + 1));
            assert!(points.iter().zip(1..).take(EXACT).all(|(point, rank)| point.rank == rank));
        }
    }
}
