//! The last 15 minutes of the counters, one value for each second. Only series with traffic use memory: at most 18 kB
//! for a route, 14.4 kB for a limit and 10.8 kB for an upstream, so at most 5.2 MB together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::metrics::Sample;

/// The number of seconds that are kept.
pub(super) const SECONDS: usize = 900;

/// The maximal numbers of series. The first with traffic have a history.
const MAX_ROUTES: usize = 64;
const MAX_LIMITS: usize = 256;
const MAX_UPSTREAMS: usize = 32;

/// The history of a gateway.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) total: Series<5>,
    pub(super) routes: BTreeMap<String, Series<5>>,
    pub(super) limits: BTreeMap<(String, String), Series<4>>,
    pub(super) upstreams: BTreeMap<String, Series<3>>,
    /// Decisions of the store, their microseconds, and failures.
    pub(super) store: Series<3>,
    /// The latest sample.
    pub(super) latest: Sample,
}

/// The counts of `N` counters.
#[derive(Debug)]
pub(super) struct Series<const N: usize> {
    /// The latest values of the counters.
    pub(super) last: [u64; N],
    /// The increases in each second, the latest at the end.
    recent: VecDeque<[u32; N]>,
}

/// The last increases of a series as JSON: a list for each counter, without leading zeros.
#[derive(Debug)]
pub(super) struct Recent<'a, const N: usize>(&'a Series<N>, usize);

impl History {
    /// Adds the sample of a second.
    pub(super) fn push(&mut self, sample: Sample) {
        let mut total = [0; 5];
        for counts in sample.routes.values() {
            total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.total.push(total);
        push_all(&mut self.routes, sample.routes.iter().map(|(name, counts)| (name, *counts)), MAX_ROUTES);
        push_all(&mut self.limits, sample.limits.iter().map(|(name, limit)| (name, limit.decisions)), MAX_LIMITS);
        let upstreams = sample.upstreams.iter().map(|(name, upstream)| (name, upstream.requests));
        push_all(&mut self.upstreams, upstreams, MAX_UPSTREAMS);
        self.store.push([sample.store.decisions, sample.store.micros, sample.store.failures]);
        self.latest = sample;
    }

    /// Returns `true` if some routes, limits or upstreams have traffic and no history.
    pub(super) fn is_full(&self) -> bool {
        let Sample { routes, limits, upstreams, .. } = &self.latest;
        (routes.len(), limits.len(), upstreams.len()) != (self.routes.len(), self.limits.len(), self.upstreams.len())
    }
}

/// Adds the counts of a second to all series. Removes the series of names that are gone.
fn push_all<'a, K: Ord + Clone + 'a, const N: usize>(
    series: &mut BTreeMap<K, Series<N>>,
    counts: impl Iterator<Item = (&'a K, [u64; N])> + Clone,
    max: usize,
) {
    let names: BTreeSet<&K> = counts.clone().map(|(name, _)| name).collect();
    series.retain(|name, _| names.contains(name));
    for (name, counts) in counts {
        if let Some(series) = series.get_mut(name) {
            series.push(counts);
        } else if series.len() < max {
            series.entry(name.clone()).or_default().push(counts);
        }
    }
}

// === impl Series ===

impl<const N: usize> Series<N> {
    fn push(&mut self, counts: [u64; N]) {
        // A smaller value belongs to a new counter: the route was removed and added again.
        let increase = |index: usize| counts[index].checked_sub(self.last[index]).unwrap_or(counts[index]);
        let increases = std::array::from_fn(|index| u32::try_from(increase(index)).unwrap_or(u32::MAX));
        if self.recent.len() >= SECONDS {
            self.recent.pop_front();
        }
        self.recent.push_back(increases);
        self.last = counts;
    }

    /// Returns the increases in the last `seconds` seconds.
    pub(super) fn sum(&self, seconds: usize) -> [u64; N] {
        let mut sums = [0; N];
        for increases in self.recent.iter().rev().take(seconds) {
            sums.iter_mut().zip(increases).for_each(|(sum, increase)| *sum += u64::from(*increase));
        }
        sums
    }

    pub(super) fn recent(&self, seconds: usize) -> Recent<'_, N> {
        Recent(self, seconds)
    }
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self { last: [0; N], recent: VecDeque::new() }
    }
}

// === impl Recent ===

impl<const N: usize> Serialize for Recent<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(series, seconds) = self;
        let begin = series.recent.len().saturating_sub(*seconds);
        let mut lists = serializer.serialize_seq(Some(N))?;
        for index in 0..N {
            let values = series.recent.iter().skip(begin).map(|increases| increases[index]);
            lists.serialize_element(&values.skip_while(|value| *value == 0).collect::<Vec<_>>())?;
        }
        lists.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(routes: &[(&str, [u64; 5])]) -> Sample {
        let routes = routes.iter().map(|(name, counts)| ((*name).to_owned(), *counts)).collect();
        Sample { routes, ..Sample::default() }
    }

    #[test]
    fn history_has_the_increases_of_each_second() {
        let mut history = History::default();
        for count in [0, 0, 5, 9, 9] {
            history.push(sample(&[("a", [count, 0, 1, 0, 0]), ("b", [1, 0, 0, 0, 0])]));
        }
        let json = |seconds| serde_json::to_string(&history.routes["a"].recent(seconds)).expect("JSON");
        assert_eq!(json(SECONDS), "[[5,4,0],[],[1,0,0,0,0],[],[]]");
        assert_eq!(json(1), "[[],[],[],[],[]]");
        assert_eq!((history.routes["a"].sum(3), history.routes["a"].last[0]), ([9, 0, 0, 0, 0], 9));
        assert_eq!(history.total.last, [10, 0, 1, 0, 0]);
    }

    #[test]
    fn history_is_bounded() {
        let mut history = History::default();
        let names: Vec<_> = (0..MAX_ROUTES + 9).map(|number| format!("r{number}")).collect();
        for second in 1..=2_000 {
            let routes: Vec<_> = names.iter().map(|name| (name.as_str(), [second, 0, 0, 0, 0])).collect();
            history.push(sample(&routes));
        }
        assert_eq!((history.routes.len(), history.is_full()), (MAX_ROUTES, true));
        assert!(history.routes.values().all(|series| series.recent.len() == SECONDS));
        assert_eq!(history.total.sum(10)[0], 10 * names.len() as u64);
        history.push(sample(&[("r1", [3, 0, 0, 0, 0])]));
        assert_eq!((history.routes.len(), history.is_full()), (1, false));
        // The counter is smaller, so it is another one.
        assert_eq!(history.routes["r1"].sum(1)[0], 3);
    }

    #[test]
    fn limits_are_found_by_route_and_name() {
        let mut history = History::default();
        let mut sample = Sample::default();
        sample.limits.entry(("a".to_owned(), "l".to_owned())).or_default().decisions = [7, 3, 0, 0];
        history.push(sample);
        assert_eq!(history.limits[&("a".to_owned(), "l".to_owned())].sum(60), [7, 3, 0, 0]);
    }
}
