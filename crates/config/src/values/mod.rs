//! The types of values that only the rule file and the gateway know: units, listeners, the access log, the dashboard, tokens.

pub(crate) mod access_log;
pub mod dashboard;
pub(crate) mod listen;
pub(crate) mod tokens;
pub(crate) mod units;
