//! Calls of the rate limit service, by domain. Domains without calls have no series.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;
use crate::instruments::histogram::Histogram;
use crate::requests::routes::ROUTE;

/// The names of [`CallResult`], in the order of its variants.
const RESULTS: [&str; 5] = ["ok", "over_limit", "shadow_over_limit", "unknown_domain", "invalid"];

/// The calls of all domains.
#[derive(Debug)]
pub(crate) struct Calls {
    all: ByName<CallSeries, 1>,
    /// The template of the histograms of all domains.
    durations: Histogram,
}

/// The calls of one domain. They are exported until the handle and its clones are dropped.
#[derive(Clone, Debug)]
pub struct CallMetrics(Handle<CallSeries, 1>);

#[derive(Debug)]
struct CallSeries {
    /// In the order of [`RESULTS`].
    results: [Count; RESULTS.len()],
    durations: Histogram,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// No limit rejects it.
    Ok,
    /// A limit rejects it.
    OverLimit,
    /// A limit would reject it, but the service is in shadow mode.
    Shadow,
    /// It names a domain that is not configured, and passes.
    UnknownDomain,
    /// It gets an error, for example because its message is malformed.
    Invalid,
}

impl Calls {
    /// Creates metrics whose histograms are like `durations`.
    pub(crate) fn new(durations: &Histogram) -> Self {
        Self { all: ByName::default(), durations: durations.empty() }
    }

    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let calls = Description {
            name: "service_calls",
            labels: &[ROUTE, Label::Fixed("result", &RESULTS)],
            unit: "calls",
            meaning: "Calls of the rate limit service. `route` is a slash and the domain, or `@take` for requests of \
                      programs for permits; it is empty for unknown domains and for invalid calls of proxies. \
                      `shadow_over_limit`: the call passes because of `service: { shadow: true }`",
            action: "`unknown_domain`: compare the `domain` of the proxy with the rule file, such calls have no limits. \
                     `invalid`: the proxy treats its requests as it does when the service is down; `--log debug` shows \
                     the causes",
        };
        catalog.add(self.all.metric(calls.labels, |series| &series.results), calls);
        let durations = Description {
            name: "service_call_seconds",
            labels: &[ROUTE],
            unit: "seconds",
            meaning: "Time from a call of the rate limit service to its response",
            action: "near the timeout of the proxy (Envoy: 20 ms): compare `tidegate_store_call_seconds`",
        };
        catalog.add(self.all.metric(durations.labels, |series| from_ref(&series.durations)), durations);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Returns the counters of the calls of one domain. The empty name is for all other calls.
    pub fn calls(&self, route: impl Into<Arc<str>>) -> CallMetrics {
        let Calls { all, durations } = &self.calls;
        let series = || CallSeries { results: Default::default(), durations: durations.empty() };
        CallMetrics(all.get_or_create([route.into()], series))
    }
}

impl CallMetrics {
    /// Counts a call, and the time until its response.
    pub fn answered(&self, result: CallResult, took: Duration) {
        self.0.results[result as usize].inc();
        self.0.durations.observe(took);
    }
}
