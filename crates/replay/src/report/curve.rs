//! How many clients and permits each rate would reject, from the permits that requests need in each interval.

use serde::Serialize;

/// Numbers below this have a bucket each.
const EXACT: u32 = 64;

/// The number of buckets for each power of two of larger numbers.
const STEPS: u32 = 16;

/// Counts numbers in buckets whose bounds are at most 6 % apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram(Vec<Bucket>);

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    count: u64,
    sum: u64,
}

/// The rejections of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurvePoint {
    /// The permits in each interval.
    pub rate: u32,
    /// The clients that need more permits in an interval.
    pub clients: u64,
    /// The permits beyond the rate: requests, if each costs one permit.
    pub requests: u64,
    /// The intervals of all buckets that need more permits.
    pub intervals: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, number: u32) {
        if number == 0 {
            return;
        }
        let position = position(number);
        if self.0.len() <= position {
            self.0.resize(position + 1, Bucket::default());
        }
        self.0[position].count += 1;
        self.0[position].sum += u64::from(number);
    }

    /// Returns the count and the sum of the numbers in buckets above this one.
    fn above(&self, position: usize) -> Bucket {
        let above = self.0.iter().skip(position + 1);
        above.fold(Bucket::default(), |sum, bucket| Bucket {
            count: sum.count + bucket.count,
            sum: sum.sum + bucket.sum,
        })
    }
}

/// Returns the curve: a point for rate 0, and a point for each bucket with numbers. `peaks` has the most permits of
/// each client in an interval, `intervals` the permits in each interval of each bucket of the limit.
pub(crate) fn curve(peaks: &Histogram, intervals: &Histogram) -> Vec<CurvePoint> {
    let has_numbers = |position: &usize| {
        let has = |histogram: &Histogram| histogram.0.get(*position).is_some_and(|bucket| bucket.count > 0);
        has(peaks) || has(intervals) || *position == 0
    };
    let positions = (0..peaks.0.len().max(intervals.0.len())).filter(has_numbers);
    let point = |position| {
        let (rate, over) = (upper_bound(position), intervals.above(position));
        let requests = over.sum.saturating_sub(over.count * u64::from(rate));
        CurvePoint { rate, clients: peaks.above(position).count, requests, intervals: over.count }
    };
    positions.map(point).collect()
}

/// Returns all bounds of buckets up to this number, and the bound of its bucket. The first bound is 0.
pub(crate) fn bounds(number: u32) -> impl Iterator<Item = u32> {
    (0..=position(number)).map(upper_bound)
}

fn position(number: u32) -> usize {
    let position = match number.checked_ilog2() {
        Some(power) if number >= EXACT => {
            let step = (number >> (power - STEPS.ilog2())) - STEPS;
            EXACT + (power - EXACT.ilog2()) * STEPS + step
        }
        _ => number,
    };
    position as usize
}

/// Returns the largest number of a bucket.
fn upper_bound(position: usize) -> u32 {
    let position = u32::try_from(position).unwrap_or(u32::MAX);
    let Some(beyond) = position.checked_sub(EXACT) else { return position };
    let power = EXACT.ilog2() + beyond / STEPS;
    let next = u64::from(STEPS + beyond % STEPS + 1) << (power - STEPS.ilog2());
    u32::try_from(next - 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_their_upper_bounds() {
        for number in (0..5_000).chain([1 << 20, (1 << 20) + 1, u32::MAX - 1, u32::MAX]) {
            let bound = upper_bound(position(number));
            assert!(bound >= number && position(bound) == position(number), "{number} {bound}");
            assert!(u64::from(bound) * 16 <= u64::from(number) * 17, "{number} {bound}");
        }
    }

    #[test]
    fn curve_counts_clients_and_requests_above_each_rate() {
        let (mut peaks, mut intervals) = (Histogram::default(), Histogram::default());
        [2, 5, 5].into_iter().for_each(|peak| peaks.add(peak));
        [2, 5, 5, 3].into_iter().for_each(|requests| intervals.add(requests));
        let points: Vec<_> = curve(&peaks, &intervals).iter().map(|at| (at.rate, at.clients, at.requests)).collect();
        assert_eq!(points, [(0, 3, 15), (2, 2, 7), (3, 2, 4), (5, 0, 0)]);
    }
}
