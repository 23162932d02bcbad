//! Replays of requests, for tests that compare them with a gateway.

use std::path::Path;

use crate::config::Config;
pub use crate::replay::verdicts::TracedRequest;
use crate::replay::verdicts::{of_log, of_trace};

/// Returns for each request whether the limits of a rule file admit it.
///
/// # Errors
/// The rule file is invalid.
pub fn replay_trace(rules: &str, trace: &[TracedRequest<'_>]) -> Result<Vec<bool>, String> {
    let config = Config::parse(rules).map_err(|problems| problems.to_string())?;
    Ok(of_trace(&config.rules, trace))
}

/// Returns for each parsed line of a log, by its number, whether the limits of a rule file admit the request.
///
/// # Errors
/// The rule file is invalid, or the log cannot be read.
pub fn replay_log(rules: &str, log: &Path) -> Result<Vec<(u64, bool)>, String> {
    let config = Config::parse(rules).map_err(|problems| problems.to_string())?;
    of_log(&config.rules, log).map_err(|error| error.to_string())
}
