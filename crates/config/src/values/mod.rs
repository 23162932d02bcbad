//! The types of values that only the rule file and the gateway know: units, listeners, the rate limit service and its control
//! plane, the access log, the dashboard, teams, tokens.

pub(crate) mod access_log;
pub(crate) mod control_plane;
pub mod dashboard;
pub(crate) mod listen;
pub(crate) mod service;
pub(crate) mod team;
pub(crate) mod tokens;
pub(crate) mod units;
