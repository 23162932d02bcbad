//! Metrics of routes. The series of a route end with the last rules that use it.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;
use super::histogram::Histogram;
use super::responses::{Responses, RouteResponses};
#[cfg(feature = "gateway")]
use super::sample::Sample;
use super::series_users::SeriesUser;

pub(super) const ROUTE: Label = Label::Open("route");

/// The code of a request whose client disconnected before the response.
const CLIENT_GONE: u16 = 499;

/// The status classes, and the code of a request whose client disconnected before the response.
const STATUSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "499"];

/// The metrics of all routes.
#[derive(Debug)]
pub(super) struct Routes {
    requests: Family<RequestLabels, Histogram>,
    responses: Responses,
}

/// Counts and times the responses of one route, and the requests whose clients disconnected before the response.
#[derive(Clone, Debug)]
pub(crate) struct RouteMetrics {
    responses: RouteResponses,
    classes: [Histogram; 5],
    abandoned: Histogram,
    _user: Arc<SeriesUser>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: &'static str,
}

// === impl Routes ===

impl Routes {
    /// Creates metrics whose histograms are like `durations`.
    pub(super) fn new(durations: &Histogram) -> Self {
        Self { requests: Family::new(durations.clone()), responses: Responses::default() }
    }

    /// Adds the responses of all routes to a sample.
    #[cfg(feature = "gateway")]
    pub(super) fn sample(&self, sample: &mut Sample) {
        self.responses.sample(sample);
    }

    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let responses = Description {
            name: "responses",
            labels: &[ROUTE, Label::Open("code")],
            unit: "responses",
            meaning: "Responses by exact status code; 499 if the client left before the response. An unregistered \
                      code counts as `1xx` to `5xx`, a code outside 100 to 599 as `other`",
            action: "a new code: the access log has its `reason`, and \
                     [troubleshooting](troubleshooting.md#responses) the fix",
        };
        catalog.add(self.responses.clone(), responses);
        let requests = Description {
            name: "request_duration_seconds",
            labels: &[ROUTE, Label::Fixed("status", &STATUSES)],
            unit: "seconds",
            meaning: "Time from the request head to the response head, by status class; 499 if the client left \
                      before the response",
            action: "grows: compare `tidegate_upstream_response_seconds` and `tidegate_store_call_seconds`",
        };
        catalog.add(self.requests.clone(), requests);
    }
}

impl Metrics {
    /// Returns the counters of one route. They are exported until the handle and its clones are dropped. The empty name
    /// is for requests that match no route.
    pub(crate) fn route(&self, route: &str) -> RouteMetrics {
        let labels = |route: &str, status| RequestLabels { route: route.to_owned(), status };
        let Routes { requests, responses } = &self.routes;
        let (all, all_responses, removed) = (requests.clone(), responses.clone(), route.to_owned());
        let (all_waits, all_in_flight) = (self.waits.clone(), self.in_flight.clone());
        let _user = self.users.add((route.to_owned(), None), move || {
            STATUSES.iter().for_each(|status| all.remove(&labels(&removed, status)));
            all_responses.remove(&removed);
            all_waits.remove(&removed);
            all_in_flight.remove(&removed);
        });
        let [c1, c2, c3, c4, c5, abandoned] = STATUSES.map(|status| requests.get_or_create(&labels(route, status)));
        RouteMetrics { responses: responses.route(route), classes: [c1, c2, c3, c4, c5], abandoned, _user }
    }
}

// === impl RouteMetrics ===

impl RouteMetrics {
    /// Records a response, and the time from the head of the request to the head of the response.
    pub(crate) fn responded(&self, status: u16, took: Duration) {
        self.responses.count(status);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.classes[class].observe(took);
    }

    /// Records a request whose client disconnected before the response, and the time since the head of the request.
    pub(crate) fn abandoned(&self, took: Duration) {
        self.responses.count(CLIENT_GONE);
        self.abandoned.observe(took);
    }
}
