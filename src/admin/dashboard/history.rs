//! The last 15 minutes of the counters, one value for each second. Of routes, limits and upstreams, only those with
//! traffic use memory: at most 20.5 kB for a route, 16.4 kB for a limit and 12.3 kB for an upstream. The first have 15
//! minutes, others one minute with at most 1.4 kB: together less than 10 MB.

use std::collections::{BTreeMap, VecDeque};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::latency::{Latencies, Latency, limit_routes};
use tidegate_metrics::Sample;

/// The number of seconds that are kept.
pub(super) const SECONDS: usize = 900;

/// The number of seconds of the other series.
const MINUTE: usize = 60;

/// The numbers of series with 15 minutes, and of all series. Those that have traffic first have a history.
const MAX_ROUTES: MaxSeries = MaxSeries { long: 64, all: 1_024 };
const MAX_LIMITS: MaxSeries = MaxSeries { long: 256, all: 2_048 };
const MAX_UPSTREAMS: MaxSeries = MaxSeries { long: 32, all: 256 };

/// The highest numbers of series.
#[derive(Clone, Copy, Debug)]
struct MaxSeries {
    /// Of those with 15 minutes.
    long: usize,
    all: usize,
}

/// The history of a gateway.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) total: Series<5>,
    pub(super) routes: BTreeMap<String, Series<5>>,
    pub(super) limits: BTreeMap<(String, String), Series<4>>,
    pub(super) upstreams: BTreeMap<String, Series<3>>,
    /// Decisions of the store, their total time in microseconds, and failures.
    pub(super) store: Series<3>,
    /// The latest sample.
    pub(super) latest: Sample,
    latencies: Latencies,
}

/// The counts of `N` counters.
#[derive(Debug)]
pub(super) struct Series<const N: usize> {
    /// The latest values of the counters.
    pub(super) last: [u64; N],
    /// The increases in each second, the latest at the end.
    recent: VecDeque<[u32; N]>,
    /// The number of seconds that are kept.
    span: usize,
}

/// The last increases of a series as JSON: a list for each counter, from its first value above 0.
#[derive(Debug)]
pub(super) struct Recent<'a, const N: usize>(&'a Series<N>, usize);

impl History {
    /// Adds the sample of a second.
    pub(super) fn push(&mut self, mut sample: Sample) {
        limit_routes(&mut sample.durations);
        let latest = &self.latest;
        // Adds the increases of the routes: the sum of their counts falls when a route is removed.
        let (mut total, mut increase) = ([0; 5], [0; 5]);
        for (name, counts) in &sample.routes {
            let before = latest.routes.get(name).copied().unwrap_or_default();
            add(&mut total, *counts);
            add(&mut increase, increases(*counts, before));
        }
        self.total.record(total, increase);
        push_all(&mut self.routes, [&latest.routes, &sample.routes], |counts| *counts, MAX_ROUTES);
        push_all(&mut self.limits, [&latest.limits, &sample.limits], |limit| limit.decisions, MAX_LIMITS);
        let upstreams = [&latest.upstreams, &sample.upstreams];
        push_all(&mut self.upstreams, upstreams, |upstream| upstream.requests, MAX_UPSTREAMS);
        self.store.push([sample.store.decisions, sample.store.micros, sample.store.failures]);
        let last = std::mem::replace(&mut self.latest, sample);
        self.latencies.push(last.durations);
    }

    /// Returns the latency of a route; `None` without a response in the last minute.
    pub(super) fn latency(&self, route: &str) -> Option<Latency> {
        self.latencies.of_route(route, &self.latest.durations)
    }

    /// Returns `true` if some routes, limits or upstreams have traffic, but no history of 15 minutes.
    pub(super) fn is_full(&self) -> bool {
        let Sample { routes, limits, upstreams, .. } = &self.latest;
        (routes.len(), limits.len(), upstreams.len()) != (long(&self.routes), long(&self.limits), long(&self.upstreams))
    }
}

/// Adds the counts of a second to all series. Removes the series of names that are gone.
fn push_all<K: Ord + Clone, V, const N: usize>(
    series: &mut BTreeMap<K, Series<N>>,
    [latest, sample]: [&BTreeMap<K, V>; 2],
    counts: impl Fn(&V) -> [u64; N],
    max: MaxSeries,
) {
    series.retain(|name, _| sample.contains_key(name));
    let mut free = max.long.saturating_sub(long(series));
    for (name, value) in sample {
        if !series.contains_key(name) && series.len() < max.all {
            // Counts from before the series existed are no increase of this second.
            let last = latest.get(name).map_or([0; N], &counts);
            series.insert(name.clone(), Series { last, span: MINUTE, ..Series::default() });
        }
        if let Some(series) = series.get_mut(name) {
            if series.span == MINUTE && free > 0 {
                (series.span, free) = (SECONDS, free - 1);
            }
            series.push(counts(value));
        }
    }
}

/// Returns the number of series with 15 minutes.
fn long<K, const N: usize>(series: &BTreeMap<K, Series<N>>) -> usize {
    series.values().filter(|series| series.span == SECONDS).count()
}

fn increases<const N: usize>(counts: [u64; N], before: [u64; N]) -> [u64; N] {
    // A smaller value belongs to a new counter: the route was removed and added again.
    std::array::from_fn(|index| counts[index].checked_sub(before[index]).unwrap_or(counts[index]))
}

fn add<const N: usize>(sums: &mut [u64; N], counts: [u64; N]) {
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

// === impl Series ===

impl<const N: usize> Series<N> {
    fn push(&mut self, counts: [u64; N]) {
        self.record(counts, increases(counts, self.last));
    }

    /// Adds the counts and the increases of a second.
    fn record(&mut self, counts: [u64; N], increases: [u64; N]) {
        if self.recent.len() >= self.span {
            self.recent.pop_front();
        }
        self.recent.push_back(increases.map(|increase| u32::try_from(increase).unwrap_or(u32::MAX)));
        self.last = counts;
    }

    /// Returns the increases in the last `seconds` seconds.
    pub(super) fn sum(&self, seconds: usize) -> [u64; N] {
        let mut sums = [0; N];
        for increases in self.recent.iter().rev().take(seconds) {
            add(&mut sums, increases.map(u64::from));
        }
        sums
    }

    /// Returns the number of seconds that are kept.
    pub(super) fn span(&self) -> usize {
        self.span
    }

    pub(super) fn recent(&self, seconds: usize) -> Recent<'_, N> {
        Recent(self, seconds)
    }
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self { last: [0; N], recent: VecDeque::new(), span: SECONDS }
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
        let names: Vec<_> = (0..MAX_ROUTES.all + 9).map(|number| format!("r{number}")).collect();
        for second in 1..=2_000 {
            let routes: Vec<_> = names.iter().map(|name| (name.as_str(), [second, 0, 0, 0, 0])).collect();
            history.push(sample(&routes));
        }
        assert_eq!((history.routes.len(), history.is_full()), (MAX_ROUTES.all, true));
        let kept = |seconds| history.routes.values().filter(|series| series.recent.len() == seconds).count();
        assert_eq!((kept(SECONDS), kept(MINUTE)), (MAX_ROUTES.long, MAX_ROUTES.all - MAX_ROUTES.long));
        assert_eq!(history.total.sum(10)[0], 10 * names.len() as u64);
        history.push(sample(&[("r1", [3, 0, 0, 0, 0])]));
        assert_eq!((history.routes.len(), history.is_full()), (1, false));
        // The counter is smaller, so it is another one.
        assert_eq!(history.routes["r1"].sum(1)[0], 3);
    }

    #[test]
    fn short_series_grows_when_a_place_is_free() {
        let mut history = History::default();
        let names: Vec<_> = (0..=MAX_ROUTES.long).map(|number| format!("r{number:03}")).collect();
        let routes: Vec<_> = names.iter().map(|name| (name.as_str(), [9, 0, 0, 0, 0])).collect();
        history.push(sample(&routes));
        let late = names[MAX_ROUTES.long].as_str();
        assert_eq!((history.routes[late].span(), history.is_full()), (MINUTE, true));
        history.push(sample(&routes[1..]));
        assert_eq!((history.routes[late].span(), history.is_full()), (SECONDS, false));
    }

    #[test]
    fn removed_route_does_not_change_the_increase_of_the_total() {
        let mut history = History::default();
        history.push(sample(&[("a", [500, 0, 0, 0, 0]), ("b", [700, 0, 0, 0, 0])]));
        history.push(sample(&[("b", [700, 0, 0, 0, 0])]));
        assert_eq!((history.total.sum(1), history.total.last[0]), ([0; 5], 700));
        history.push(sample(&[("a", [2, 0, 0, 0, 0]), ("b", [701, 0, 0, 0, 0])]));
        assert_eq!((history.total.sum(1)[0], history.routes["a"].sum(1)[0]), (3, 2));
    }

    #[test]
    fn series_with_a_late_slot_begins_without_an_increase() {
        let mut history = History::default();
        let names: Vec<_> = (0..=MAX_ROUTES.all).map(|number| format!("r{number:04}")).collect();
        let routes: Vec<_> = names.iter().map(|name| (name.as_str(), [90, 0, 0, 0, 0])).collect();
        history.push(sample(&routes));
        let late = names[MAX_ROUTES.all].as_str();
        assert!(!history.routes.contains_key(late));
        history.push(sample(&routes[1..]));
        assert_eq!((history.routes[late].sum(60), history.routes[late].last[0]), ([0; 5], 90));
        history.push(sample(&[(late, [94, 0, 0, 0, 0])]));
        assert_eq!(history.routes[late].sum(60)[0], 4);
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
