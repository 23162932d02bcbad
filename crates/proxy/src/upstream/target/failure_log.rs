//! The log lines about the failures of a target.
//!
//! Each target logs at most one line about failures in a second, and at most one recovery for each of those lines. If a
//! target fails again within a second of its recovery, its next recovery is logged only after a second without
//! failures.

use std::time::Duration;

use tokio::time::Instant;

use super::super::target_error::TargetError;

/// The least time between two log lines on the failures of a target.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The failures of a target, and when they were logged.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    pub(super) outage: Option<Outage>,
    pub(super) last_line: Option<Instant>,
    pub(super) last_recovery: Option<Instant>,
}

/// A time in which a target fails.
#[derive(Debug)]
pub(super) struct Outage {
    pub(super) since: Instant,
    pub(super) last_failure: Instant,
    /// Failures since the outage began.
    pub(super) failures: u64,
    /// Failures since the last log line.
    pub(super) unlogged: u64,
    pub(super) is_logged: bool,
    /// Whether the outage began within a second of a recovery.
    pub(super) is_repeated: bool,
    pub(super) last_error: String,
}

/// The message and numbers of a log line about failures.
pub(super) struct Line {
    pub(super) message: &'static str,
    pub(super) failures: u64,
    pub(super) total: u64,
    pub(super) failing_ms: u64,
}

// === impl FailureLog, Outage ===

impl FailureLog {
    /// Records a failure. Returns the log line, unless another line was logged less than a second before.
    pub(super) fn record(&mut self, failure: &TargetError, now: Instant) -> Option<Line> {
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now - at < LOG_INTERVAL);
        let (is_repeated, is_logged_recently) = (is_recent(self.last_recovery), is_recent(self.last_line));
        let outage = self.outage.get_or_insert_with(|| Outage::new(now, is_repeated));
        outage.last_failure = now;
        outage.failures += 1;
        outage.unlogged += 1;
        outage.last_error.clone_from(&failure.error);
        if is_logged_recently {
            return None;
        }
        self.last_line = Some(now);
        let message = if outage.is_logged { "upstream target still fails" } else { "upstream target fails" };
        outage.is_logged = true;
        let failures = std::mem::take(&mut outage.unlogged);
        Some(Line { message, failures, total: outage.failures, failing_ms: millis(now - outage.since) })
    }
}

impl Outage {
    fn new(now: Instant, is_repeated: bool) -> Self {
        let (failures, unlogged, is_logged, last_error) = (0, 0, false, String::new());
        Self { since: now, last_failure: now, failures, unlogged, is_logged, is_repeated, last_error }
    }

    /// Returns `true` if a success at `now` ends the outage.
    pub(super) fn ends_at(&self, now: Instant) -> bool {
        !self.is_repeated || now - self.last_failure >= LOG_INTERVAL
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
