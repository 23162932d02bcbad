//! Metrics of requests: by route, by limit, their responses, those that wait and those in flight.

pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod responses;
pub(crate) mod routes;
pub(crate) mod waits;
