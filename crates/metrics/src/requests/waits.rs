//! The times that requests spent waiting for permits. A route without waiting has no series.

use std::sync::Arc;
use std::time::Duration;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::histogram::Histogram;
use crate::requests::routes::ROUTE;
use tidegate_limit::clock::Stopwatch;

/// The names of [`WaitOutcome`], in the order of its variants.
const OUTCOMES: [&str; 3] = ["admitted", "rejected", "abandoned"];

/// The times by outcome, in the order of [`OUTCOMES`].
type WaitSeries = [Histogram; OUTCOMES.len()];

/// The waiting times of all routes.
#[derive(Debug)]
pub(crate) struct Waits {
    all: ByName<WaitSeries, 1>,
    /// The template of the histograms of all routes.
    durations: Histogram,
}

/// The waiting times of one route. They are exported until the handle and its clones are dropped.
#[derive(Clone, Debug)]
pub struct WaitMetrics(Handle<WaitSeries, 1>);

/// A request that may have to wait. When dropped after it began to wait, it is counted.
#[derive(Debug)]
pub struct WaitRecord<'m> {
    metrics: &'m WaitMetrics,
    since: Option<Stopwatch>,
    outcome: WaitOutcome,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitOutcome {
    Admitted,
    Rejected,
    /// The client disconnected.
    Abandoned,
}

impl Waits {
    /// Creates metrics whose histograms are like `durations`.
    pub(crate) fn new(durations: &Histogram) -> Self {
        Self { all: ByName::default(), durations: durations.empty() }
    }

    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let waits = Description {
            name: "permit_wait_seconds",
            labels: &[ROUTE, Label::Fixed("outcome", &OUTCOMES)],
            unit: "seconds",
            meaning: "Time that requests waited for permits, if they had to: for `max_wait`, or for a time slot of \
                      `leaky_bucket`. `abandoned`: the client left",
            action: "near `max_wait`: requests are rejected soon; raise the rate. Many `abandoned`: shorten \
                     `max_wait`",
        };
        catalog.add(self.all.metric(waits.labels, |outcomes| outcomes), waits);
    }
}

#[doc(hidden)]
impl Metrics {
    pub fn waits(&self, route: impl Into<Arc<str>>) -> WaitMetrics {
        let Waits { all, durations } = &self.waits;
        WaitMetrics(all.get_or_create([route.into()], || OUTCOMES.map(|_| durations.empty())))
    }
}

impl<'m> WaitRecord<'m> {
    /// Creates the record of a request that does not wait yet.
    pub fn new(metrics: &'m WaitMetrics) -> Self {
        Self { metrics, since: None, outcome: WaitOutcome::Abandoned }
    }

    /// Records that the request has to wait.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Stopwatch::start);
    }

    /// Records the decision about the request.
    pub fn end(&mut self, is_admitted: bool) {
        self.outcome = if is_admitted { WaitOutcome::Admitted } else { WaitOutcome::Rejected };
    }

    fn waited(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed())
    }
}

impl Drop for WaitRecord<'_> {
    fn drop(&mut self) {
        if let Some(waited) = self.waited() {
            self.metrics.0[self.outcome as usize].observe(waited);
        }
    }
}
