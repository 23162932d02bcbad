//! Metrics of routes. The series of a route end with the last rules that use it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::histogram::Histogram;
use crate::instruments::sample::{Durations, Sample};
use crate::requests::responses::{LABELS, Responses};

pub(crate) const ROUTE: Label = Label::Open("route");

pub(crate) const LIMIT: Label = Label::Open("limit");

/// The code of a request whose client disconnected before the response.
const CLIENT_GONE: u16 = 499;

/// The status classes, and the code of a request whose client disconnected before the response.
const STATUSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "499"];

/// The metrics of all routes.
#[derive(Debug)]
pub(crate) struct Routes {
    all: ByName<RouteSeries, 1>,
    /// The template of the histograms of all routes.
    durations: Histogram,
}

/// Counts and times the responses of one route, and the requests whose clients disconnected before the response.
#[derive(Clone, Debug)]
pub struct RouteMetrics(Handle<RouteSeries, 1>);

#[derive(Debug)]
struct RouteSeries {
    durations: Histogram,
    /// Created for the first response: most routes of a large rule file wait for their first request.
    data: OnceLock<Box<RouteData>>,
}

#[derive(Debug)]
struct RouteData {
    responses: Responses,
    /// The times by status, in the order of [`STATUSES`].
    requests: [Histogram; STATUSES.len()],
}

// === impl RouteData ===

impl RouteData {
    /// Returns the durations of all responses. Clients that disconnected got none.
    fn durations(&self) -> Durations {
        let [with_response @ .., _gone] = &self.requests;
        let bounds = Arc::clone(self.requests[0].bounds());
        let mut counts = vec![0; bounds.len() + 1];
        with_response.iter().for_each(|histogram| histogram.add_counts(&mut counts));
        Durations { bounds, counts }
    }
}

// === impl Routes ===

impl Routes {
    /// Creates metrics whose histograms are like `durations`.
    pub(crate) fn new(durations: &Histogram) -> Self {
        Self { all: ByName::default(), durations: durations.empty() }
    }

    /// Adds the responses of all routes to a sample.
    pub(crate) fn sample(&self, sample: &mut Sample) {
        for route in self.all.all() {
            let [name] = route.names();
            if let Some(data) = route.data.get() {
                *sample.route(name) = data.responses.by_kind();
                sample.durations.insert(name.to_owned(), data.durations());
            }
        }
    }

    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let responses = Description {
            name: "responses",
            labels: &[ROUTE, Label::Open("code")],
            unit: "responses",
            meaning: "Responses by exact status code; 499 if the client left before the response. An unregistered \
                      code counts as `1xx` to `5xx`, a code outside 100 to 599 as `other`",
            action: "a new code: the access log has its `reason`, and \
                     [troubleshooting](troubleshooting.md#responses) the fix",
        };
        let counts =
            self.all.metric(responses.labels, |route| route.data.get().map_or(&[][..], |data| data.responses.counts()));
        catalog.add(counts.with_words(&LABELS), responses);
        let requests = Description {
            name: "request_duration_seconds",
            labels: &[ROUTE, Label::Fixed("status", &STATUSES)],
            unit: "seconds",
            meaning: "Time from the request head to the response head, by status class; 499 if the client left \
                      before the response",
            action: "grows: compare `tidegate_upstream_response_seconds` and `tidegate_store_call_seconds`",
        };
        let times = self.all.metric(requests.labels, |route| route.data.get().map_or(&[][..], |data| &data.requests));
        catalog.add(times, requests);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Returns the counters of one route. They are exported until the handle and its clones are dropped. The empty name
    /// is for requests that match no route.
    pub fn route(&self, route: impl Into<Arc<str>>) -> RouteMetrics {
        let Routes { all, durations } = &self.routes;
        let create = || RouteSeries { durations: durations.clone(), data: OnceLock::new() };
        RouteMetrics(all.get_or_create([route.into()], create))
    }
}

// === impl RouteMetrics ===

impl RouteMetrics {
    /// Records a response, and the time from the head of the request to the head of the response.
    pub fn responded(&self, status: u16, took: Duration) {
        self.record(status, usize::from(status / 100).clamp(1, 5) - 1, took);
    }

    /// Records a request whose client disconnected before the response, and the time since the head of the request.
    pub fn abandoned(&self, took: Duration) {
        self.record(CLIENT_GONE, STATUSES.len() - 1, took);
    }

    fn record(&self, code: u16, status: usize, took: Duration) {
        let data = self.0.data.get_or_init(|| {
            let requests = STATUSES.map(|_| self.0.durations.empty());
            Box::new(RouteData { responses: Responses::default(), requests })
        });
        data.responses.count(code);
        data.requests[status].observe(took);
    }
}
