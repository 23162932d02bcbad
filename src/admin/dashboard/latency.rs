//! The latency of each route in the last minute, from the histograms of its responses.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use tidegate_metrics::Durations;

/// The number of seconds between two snapshots of the histograms.
const STEP: u64 = 10;

/// The number of snapshots: the window is 60 to 70 seconds.
const SNAPSHOTS: usize = 7;

/// The maximum number of routes with a latency: the first ones by name. The snapshots use at most 2 MB with the default
/// buckets.
const MAX_ROUTES: usize = 1_024;

/// The histogram of each route at one moment.
pub(super) type Snapshot = BTreeMap<String, Durations>;

/// The histograms of the last minute.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// The oldest is first.
    snapshots: VecDeque<Snapshot>,
    /// The number of seconds.
    seconds: u64,
}

/// The latency of a route, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(in crate::admin) struct Latency {
    /// Half of the responses took at most this.
    pub(in crate::admin) p50: u64,
    /// 99 % of the responses took at most this.
    pub(in crate::admin) p99: u64,
}

impl Latencies {
    /// Begins a second. `last` are the histograms at the end of the previous second; every tenth snapshot is kept, and none is
    /// copied.
    pub(super) fn push(&mut self, last: Snapshot) {
        if self.seconds.is_multiple_of(STEP) {
            if self.snapshots.len() >= SNAPSHOTS {
                self.snapshots.pop_front();
            }
            self.snapshots.push_back(last);
        }
        self.seconds += 1;
    }

    /// Returns the latency of a route whose histogram is in `latest`; `None` without a response in the last minute.
    pub(super) fn of_route(&self, name: &str, latest: &Snapshot) -> Option<Latency> {
        let latest = latest.get(name)?;
        let before = self.snapshots.front().and_then(|snapshot| snapshot.get(name));
        let counts: Vec<u64> = match before.filter(|before| is_earlier(before, latest)) {
            Some(before) => latest.counts.iter().zip(&before.counts).map(|(now, then)| now - then).collect(),
            None => latest.counts.clone(),
        };
        let quantile = |per_mille| quantile(&latest.bounds, &counts, per_mille);
        Some(Latency { p50: quantile(500)?, p99: quantile(990)? })
    }
}

/// Removes the histograms of routes that have no latency.
pub(super) fn limit_routes(snapshot: &mut Snapshot) {
    if let Some(first) = snapshot.keys().nth(MAX_ROUTES).cloned() {
        _ = snapshot.split_off(&first);
    }
}

/// Returns `true` if a histogram is an earlier state of another one. Otherwise the route was removed and added again.
fn is_earlier(before: &Durations, latest: &Durations) -> bool {
    before.counts.len() == latest.counts.len() && before.counts.iter().zip(&latest.counts).all(|(a, b)| a <= b)
}

/// Returns a quantile in microseconds, as `histogram_quantile` of Prometheus: linear within a bucket. Values beyond the last
/// bound count as that bound.
fn quantile(bounds: &[f64], counts: &[u64], per_mille: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = (total * per_mille).div_ceil(1_000).max(1);
    let (mut below, mut lower) = (0, 0.0);
    for (bound, count) in bounds.iter().zip(counts) {
        if below + count >= rank {
            return Some(micros(lower + (bound - lower) * share(rank - below, *count)));
        }
        (below, lower) = (below + count, *bound);
    }
    Some(micros(lower))
}

fn share(part: u64, of: u64) -> f64 {
    let small = |value| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    (small(part) / small(of).max(1.0)).min(1.0)
}

fn micros(seconds: f64) -> u64 {
    let duration = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(counts: [u64; 3]) -> BTreeMap<String, Durations> {
        let one = Durations { bounds: [0.001, 0.01].into(), counts: counts.to_vec() };
        BTreeMap::from([("a".to_owned(), one)])
    }

    #[test]
    fn quantiles_are_linear_within_a_bucket() {
        let quantiles = |counts: [u64; 3]| [500, 990].map(|per_mille| quantile(&[0.001, 0.01], &counts, per_mille));
        assert_eq!(quantiles([0, 0, 0]), [None, None]);
        assert_eq!(quantiles([100, 0, 0]), [Some(500), Some(990)]);
        assert_eq!(quantiles([50, 50, 0]), [Some(1_000), Some(9_820)]);
        assert_eq!(quantiles([1, 0, 1]), [Some(1_000), Some(10_000)]);
    }

    /// The latencies with the histograms of the last second, as the history has them.
    #[derive(Default)]
    struct Minute {
        latencies: Latencies,
        latest: Snapshot,
    }

    impl Minute {
        fn push(&mut self, counts: [u64; 3]) {
            self.latencies.push(std::mem::replace(&mut self.latest, durations(counts)));
        }

        fn latency(&self) -> Option<Latency> {
            self.latencies.of_route("a", &self.latest)
        }
    }

    #[test]
    fn latency_is_of_the_last_minute() {
        let mut minute = Minute::default();
        assert_eq!(minute.latency(), None);
        for second in 0..20 {
            minute.push([second, 0, 0]);
        }
        assert_eq!(minute.latency().map(|latency| latency.p50), Some(526), "all since the start");
        for _ in 0..70 {
            minute.push([19, 0, 0]);
        }
        assert_eq!(minute.latency(), None);
        minute.push([19, 1, 0]);
        assert_eq!(minute.latency(), Some(Latency { p50: 10_000, p99: 10_000 }));
        // Another histogram: the route was removed and added again.
        minute.push([2, 0, 0]);
        assert_eq!(minute.latency(), Some(Latency { p50: 500, p99: 1_000 }));
    }

    /// A copy of the histograms in each second would cost time and memory with many routes.
    #[test]
    fn every_tenth_histogram_is_kept_without_a_copy() {
        let mut minute = Minute::default();
        let mut tenth = Vec::new();
        for second in 0..95 {
            if second % STEP == 0 {
                tenth.push(minute.latest.get("a").map(|one| one.counts.as_ptr()));
            }
            minute.push([second, 0, 0]);
        }
        let kept = minute.latencies.snapshots.iter().map(|snapshot| snapshot.get("a").map(|one| one.counts.as_ptr()));
        assert_eq!(kept.collect::<Vec<_>>(), tenth[tenth.len() - SNAPSHOTS..]);
    }

    #[test]
    fn first_routes_by_name_have_a_latency() {
        let one = &durations([1, 0, 0])["a"];
        let mut snapshot: Snapshot = (0..MAX_ROUTES + 5).map(|number| (format!("r{number:04}"), one.clone())).collect();
        limit_routes(&mut snapshot);
        let last = snapshot.last_key_value().map(|(name, _)| name.as_str());
        assert_eq!((snapshot.len(), last), (MAX_ROUTES, Some("r1023")));
        limit_routes(&mut snapshot);
        assert_eq!(snapshot.len(), MAX_ROUTES);
    }
}
