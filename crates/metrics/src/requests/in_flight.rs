//! Requests in flight of routes with `concurrency`. Other routes have no series.

use std::slice::from_ref;
use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;
use crate::instruments::gauge::GaugeGuard;
use crate::requests::routes::ROUTE;

/// The bounds that reject requests, as in the rule file.
const BOUNDS: [&str; 2] = ["max", "per_client"];

/// The requests in flight of all routes.
#[derive(Debug, Default)]
pub(crate) struct InFlight(ByName<InFlightSeries, 1>);

/// The requests in flight of one route. They are exported until the handle and its clones are dropped.
#[derive(Clone, Debug)]
pub struct InFlightMetrics(Handle<InFlightSeries, 1>);

#[derive(Debug, Default)]
struct InFlightSeries {
    in_flight: Gauge,
    waiting: Gauge,
    /// In the order of [`BOUNDS`].
    rejected: [Count; BOUNDS.len()],
}

impl InFlight {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let in_flight = Description {
            name: "requests_in_flight",
            labels: &[ROUTE],
            unit: "requests",
            meaning: "Requests of this gateway that hold a slot of `concurrency`, until their responses have ended",
            action: "near `max`: the upstream is slow, or `max` is too small",
        };
        catalog.add(self.0.metric(in_flight.labels, |route| from_ref(&route.in_flight)), in_flight);
        let waiting = Description {
            name: "requests_waiting",
            labels: &[ROUTE],
            unit: "requests",
            meaning: "Requests of this gateway that wait for a slot of `concurrency`",
            action: "near `queue`: further requests are rejected",
        };
        catalog.add(self.0.metric(waiting.labels, |route| from_ref(&route.waiting)), waiting);
        let rejected = Description {
            name: "concurrency_rejected",
            labels: &[ROUTE, Label::Fixed("bound", &BOUNDS)],
            unit: "requests",
            meaning: "Requests that `concurrency` rejected: with 503 by `max`, with 429 by `per_client`",
            action: "`max`: add capacity to the upstream, or raise `queue`; `per_client`: one client sends too many \
                     requests at once",
        };
        catalog.add(self.0.metric(rejected.labels, |route| &route.rejected), rejected);
    }
}

#[doc(hidden)]
impl Metrics {
    pub fn in_flight(&self, route: impl Into<Arc<str>>) -> InFlightMetrics {
        InFlightMetrics(self.in_flight.0.get_or_create([route.into()], InFlightSeries::default))
    }
}

impl InFlightMetrics {
    /// Counts a request in flight until the guard is dropped.
    pub fn begin(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.in_flight)
    }

    /// Counts a waiting request until the guard is dropped.
    pub fn begin_wait(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.waiting)
    }

    /// Counts a rejected request.
    pub fn rejected(&self, by_client: bool) {
        self.0.rejected[usize::from(by_client)].inc();
    }
}
