//! Replays of requests, for tests that compare them with a gateway, and for measurements.

use std::path::PathBuf;

use tidegate_config::Config;
use tidegate_replay::LogFormat;
pub use tidegate_replay::verdicts::{ParsedLog, ReplayedLine, TracedRequest};
use tidegate_replay::verdicts::{of_logs, of_trace};

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

/// Parses a log in this format. Lines of other formats are omitted.
///
/// # Errors
/// The format is unknown.
pub fn parse_requests(format: &str, log: Vec<u8>) -> Result<ParsedLog, String> {
    Ok(ParsedLog::parse(&LogFormat::parse_mapping(format)?, log))
}

/// Decides the requests of a log by a rule file. Returns the number of admitted requests.
///
/// # Errors
/// The rule file is invalid.
pub fn decide_log(rules: &str, log: &ParsedLog) -> Result<u64, String> {
    let config = Config::parse(rules).map_err(|problems| problems.to_string())?;
    Ok(log.decide(&config.rules))
}
