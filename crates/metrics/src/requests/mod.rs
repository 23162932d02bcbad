//! Metrics of requests: by route, by limit, the costs of budgets, their responses, those that wait, those in flight, those that a service had
//! to allow, and the calls of the rate limit service.

pub(crate) mod budgets;
pub(crate) mod calls;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod responses;
pub(crate) mod routes;
pub(crate) mod services;
pub(crate) mod waits;
