//! Requests that a service had to allow. Routes without `service` have no series.

use std::sync::Arc;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;
use crate::requests::routes::ROUTE;

/// The names of [`ServiceResult`], in the order of its variants.
const RESULTS: [&str; 4] = ["allowed", "cached", "denied", "failed"];

/// The counts by result, in the order of [`RESULTS`].
type ServiceSeries = [Count; RESULTS.len()];

/// The requests of all routes with a service.
#[derive(Debug, Default)]
pub(crate) struct Services(ByName<ServiceSeries, 1>);

/// The requests of one route with a service. They are exported until the handle and its clones are dropped.
#[derive(Clone, Debug)]
pub struct ServiceMetrics(Handle<ServiceSeries, 1>);

/// The result for a request that a service had to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceResult {
    /// The service allowed it.
    Allowed,
    /// The service has allowed an equal request before.
    Cached,
    /// The service denied it.
    Denied,
    /// The service did not decide.
    Failed,
}

impl Services {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let checks = Description {
            name: "service_checks",
            labels: &[ROUTE, Label::Fixed("result", &RESULTS)],
            unit: "requests",
            meaning: "Requests that the `service` of `require` had to allow. `cached`: the service had allowed an equal \
                      request; `failed`: it did not decide, and `on_failure` applies",
            action: "`failed`: the `reason` in the access log names the cause, and the metrics of the upstream with the URL \
                     of the service have its errors and times",
        };
        catalog.add(self.0.metric(checks.labels, |results| results), checks);
    }
}

#[doc(hidden)]
impl Metrics {
    pub fn service_checks(&self, route: impl Into<Arc<str>>) -> ServiceMetrics {
        ServiceMetrics(self.services.0.get_or_create([route.into()], ServiceSeries::default))
    }
}

impl ServiceMetrics {
    /// Counts a request.
    pub fn checked(&self, result: ServiceResult) {
        self.0[result as usize].inc();
    }
}
