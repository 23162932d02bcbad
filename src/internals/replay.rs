//! Replays of requests, for tests that compare them with a gateway.

use std::path::PathBuf;

use crate::config::Config;
pub use crate::replay::verdicts::{ReplayedLine, TracedRequest};
use crate::replay::verdicts::{of_logs, of_trace};

/// Returns for each request whether the limits of a rule file admit it.
///
/// # Errors
/// The rule file is invalid.
pub fn replay_trace(rules: &str, trace: &[TracedRequest<'_>]) -> Result<Vec<bool>, String> {
    let config = Config::parse(rules).map_err(|problems| problems.to_string())?;
    Ok(of_trace(&config.rules, trace))
}

/// Returns the decision of the limits of a rule file about each parsed line of these logs.
///
/// # Errors
/// The rule file is invalid, or a log cannot be read.
pub fn replay_logs(rules: &str, logs: &[PathBuf]) -> Result<Vec<ReplayedLine>, String> {
    let config = Config::parse(rules).map_err(|problems| problems.to_string())?;
    of_logs(&config.rules, logs).map_err(|error| error.to_string())
}
