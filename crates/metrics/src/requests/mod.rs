//! Metrics of requests: by route, by limit, their responses, those that wait, those in flight, and those
//! that a service had to allow.

pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod responses;
pub(crate) mod routes;
pub(crate) mod services;
pub(crate) mod waits;
