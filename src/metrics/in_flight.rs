//! Requests in flight of routes with `concurrency`. Other routes have no series.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;
use super::gauge::GaugeGuard;
use super::routes::ROUTE;

/// The bounds that reject requests, as in the rule file.
const BOUNDS: [&str; 2] = ["max", "per_client"];

/// The requests in flight of all routes.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    in_flight: Family<RouteLabel, Gauge>,
    waiting: Family<RouteLabel, Gauge>,
    rejected: Family<RejectedLabels, Counter>,
}

/// The requests in flight of one route. They are exported while its [`RouteMetrics`](super::RouteMetrics) exist.
#[derive(Clone, Debug)]
pub(crate) struct InFlightMetrics {
    in_flight: Gauge,
    waiting: Gauge,
    rejected: [Counter; BOUNDS.len()],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectedLabels {
    route: String,
    bound: &'static str,
}

impl InFlight {
    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let in_flight = Description {
            name: "requests_in_flight",
            labels: &[ROUTE],
            unit: "requests",
            meaning: "Requests of this gateway that hold a slot of `concurrency`, until their responses have ended",
            action: "near `max`: the upstream is slow, or `max` is too small",
        };
        catalog.add(self.in_flight.clone(), in_flight);
        let waiting = Description {
            name: "requests_waiting",
            labels: &[ROUTE],
            unit: "requests",
            meaning: "Requests of this gateway that wait for a slot of `concurrency`",
            action: "near `queue`: further requests are rejected",
        };
        catalog.add(self.waiting.clone(), waiting);
        let rejected = Description {
            name: "concurrency_rejected",
            labels: &[ROUTE, Label::Fixed("bound", &BOUNDS)],
            unit: "requests",
            meaning: "Requests that `concurrency` rejected: with 503 by `max`, with 429 by `per_client`",
            action: "`max`: add capacity to the upstream, or raise `queue`; `per_client`: one client sends too many \
                     requests at once",
        };
        catalog.add(self.rejected.clone(), rejected);
    }

    /// Removes the series of a route.
    pub(super) fn remove(&self, route: &str) {
        let label = RouteLabel { route: route.to_owned() };
        self.in_flight.remove(&label);
        self.waiting.remove(&label);
        BOUNDS.iter().for_each(|bound| self.rejected.remove(&RejectedLabels { route: route.to_owned(), bound }));
    }
}

impl Metrics {
    /// Returns the requests in flight of a route. The metrics of the route must exist.
    pub(crate) fn in_flight(&self, route: &str) -> InFlightMetrics {
        let InFlight { in_flight, waiting, rejected } = &self.in_flight;
        let label = RouteLabel { route: route.to_owned() };
        let rejected = BOUNDS.map(|bound| rejected.get_or_create(&RejectedLabels { route: route.to_owned(), bound }));
        let (in_flight, waiting) = (in_flight.get_or_create(&label), waiting.get_or_create(&label));
        InFlightMetrics { in_flight, waiting, rejected }
    }
}

impl InFlightMetrics {
    /// Counts a request in flight until the guard is dropped.
    pub(crate) fn begin(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    /// Counts a waiting request until the guard is dropped.
    pub(crate) fn begin_wait(&self) -> GaugeGuard {
        GaugeGuard::new(&self.waiting)
    }

    /// Counts a rejected request.
    pub(crate) fn rejected(&self, by_client: bool) {
        self.rejected[usize::from(by_client)].inc();
    }
}
