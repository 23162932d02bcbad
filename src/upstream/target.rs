//! The state of each target, shared by all workers. It counts attempts, and logs when the target starts to fail, still
//! fails, and has recovered.
//!
//! Each target logs at most one line about failures in a second, and at most one recovery for each of those lines. If a
//! target fails again within a second of its recovery, its next recovery is logged only after a second without
//! failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::settings::{Target, UpstreamSettings};
use super::target_error::TargetError;
use super::trace::{TargetName, Trace};
use crate::metrics::{AttemptOutcome, Metrics, TargetMetrics};

/// The least time between two log lines on the failures of a target.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The states of the targets of all upstreams.
#[derive(Debug, Default)]
pub(crate) struct TargetStates(BTreeMap<Arc<str>, Vec<Arc<TargetState>>>);

/// The state of one target.
#[derive(Debug)]
pub(crate) struct TargetState {
    name: Arc<TargetName>,
    metrics: TargetMetrics,
    /// Whether the target is failing. While it is not, a success reads only this field.
    is_failing: AtomicBool,
    log: Mutex<FailureLog>,
}

/// The failures of a target since its last response.
#[derive(Clone, Debug)]
pub(crate) struct TargetFailure {
    /// When the target began to fail.
    pub(crate) since: Instant,
    /// The number of failures.
    pub(crate) failures: u64,
    /// The last failure.
    pub(crate) last_error: String,
}

/// An attempt at a target that is in flight. On drop, it counts as canceled.
pub(super) struct InFlightAttempt<'a> {
    /// `None` once the attempt has ended. Kept small, because each request in flight has one.
    target: Option<&'a TargetState>,
}

#[derive(Debug, Default)]
struct FailureLog {
    outage: Option<Outage>,
    last_line: Option<Instant>,
    last_recovery: Option<Instant>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    last_failure: Instant,
    /// Failures since the outage began.
    failures: u64,
    /// Failures since the last log line.
    unlogged: u64,
    is_logged: bool,
    /// Whether the outage began within a second of a recovery.
    is_repeated: bool,
    last_error: String,
}

/// The settings of upstreams, by name.
type Named = BTreeMap<Arc<str>, UpstreamSettings>;

/// The message and numbers of a log line about failures.
struct Line {
    message: &'static str,
    failures: u64,
    total: u64,
    failing_ms: u64,
}

// === impl TargetStates ===

impl TargetStates {
    /// Creates the states of the targets of these upstreams.
    pub(crate) fn new<'a>(upstreams: impl IntoIterator<Item = &'a UpstreamSettings>, metrics: &Metrics) -> Self {
        let states = |settings: &UpstreamSettings| {
            let state = |target| TargetState::new(&settings.name, target, metrics);
            (Arc::clone(&settings.name), settings.targets.iter().map(state).collect())
        };
        Self(upstreams.into_iter().map(states).collect())
    }

    /// Returns the states after a reload. A target that stays in its upstream keeps its state.
    pub(crate) fn replaced(&self, old: &Named, new: &Named, metrics: &Metrics) -> Self {
        let states = |settings: &UpstreamSettings| {
            let before = old.get(&settings.name).map_or(&[][..], |old| &old.targets);
            let state = |target: &Target| {
                let position = before.iter().position(|before| before == target);
                let kept = position.and_then(|position| self.of_upstream(&settings.name).get(position));
                kept.cloned().unwrap_or_else(|| TargetState::new(&settings.name, target, metrics))
            };
            (Arc::clone(&settings.name), settings.targets.iter().map(state).collect())
        };
        Self(new.values().map(states).collect())
    }

    /// Returns the states of an upstream's targets, in their order.
    pub(super) fn of_upstream(&self, upstream: &str) -> &[Arc<TargetState>] {
        self.0.get(upstream).map_or(&[], Vec::as_slice)
    }
}

// === impl TargetState ===

impl TargetState {
    pub(super) fn new(upstream: &Arc<str>, target: &Target, metrics: &Metrics) -> Arc<Self> {
        let name = Arc::new(TargetName { upstream: Arc::clone(upstream), target: target.to_string() });
        let metrics = metrics.target(upstream, &name.target);
        Arc::new(Self { name, metrics, is_failing: AtomicBool::new(false), log: Mutex::default() })
    }

    /// Starts an attempt.
    pub(super) fn start_attempt(&self, trace: Option<&Trace>) -> InFlightAttempt<'_> {
        if let Some(trace) = trace {
            trace.record_target(&self.name);
        }
        InFlightAttempt { target: Some(self) }
    }

    /// Returns the failures since the last response. Returns `None` if the target responds.
    pub(super) fn failure(&self) -> Option<TargetFailure> {
        let log = self.log.lock();
        let Outage { since, failures, last_error, .. } = log.outage.as_ref()?;
        Some(TargetFailure { since: *since, failures: *failures, last_error: last_error.clone() })
    }

    /// Records that a response broke off after its head.
    pub(super) fn record_broken_body(&self, error: &impl ToString) {
        self.record_failure(&TargetError::body(error));
    }

    fn record_success(&self) {
        if self.is_failing.load(Relaxed) {
            self.end_outage(Instant::now());
        }
    }

    fn end_outage(&self, now: Instant) {
        let ended = {
            let mut log = self.log.lock();
            let Some(ended) = log.outage.take_if(|outage| outage.ends_at(now)) else { return };
            self.is_failing.store(false, Relaxed);
            log.last_recovery = Some(now);
            ended
        };
        if ended.is_logged {
            tracing::warn!(
                upstream = %self.name.upstream,
                target = self.name.target,
                failures = ended.failures,
                failing_ms = millis(now - ended.since),
                last_error = ended.last_error,
                "upstream target answers again"
            );
        }
    }

    fn record_failure(&self, failure: &TargetError) {
        let (TargetError { phase, error, .. }, TargetName { upstream, target }) = (failure, &*self.name);
        let line = self.log.lock().record(failure, Instant::now());
        self.is_failing.store(true, Relaxed);
        match line {
            Some(Line { message, failures, total, failing_ms }) => tracing::warn!(
                %upstream, target, phase, error, failures, total, failing_ms, "{message}"
            ),
            None => tracing::debug!(%upstream, target, phase, error, "upstream target fails"),
        }
    }
}

// === impl InFlightAttempt ===

impl InFlightAttempt<'_> {
    /// Ends the attempt with the head of a response.
    pub(super) fn succeeded(mut self) {
        if let Some(target) = self.target.take() {
            target.metrics.attempted(AttemptOutcome::Ok);
            target.record_success();
        }
    }

    /// Ends the attempt with an error of the target. `None` means that the client failed; the attempt then counts as
    /// canceled.
    pub(super) fn failed(mut self, error: Option<&TargetError>, trace: Option<&Trace>) {
        let Some(error) = error else { return };
        if let Some(trace) = trace {
            trace.record_failure(error.outcome.as_str());
        }
        if let Some(target) = self.target.take() {
            target.metrics.attempted(error.outcome);
            target.record_failure(error);
        }
    }
}

impl Drop for InFlightAttempt<'_> {
    fn drop(&mut self) {
        if let Some(target) = self.target {
            target.metrics.attempted(AttemptOutcome::Canceled);
        }
    }
}

// === impl FailureLog, Outage ===

impl FailureLog {
    /// Records a failure. Returns the log line, unless another line was logged less than a second before.
    fn record(&mut self, failure: &TargetError, now: Instant) -> Option<Line> {
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
    fn ends_at(&self, now: Instant) -> bool {
        !self.is_repeated || now - self.last_failure >= LOG_INTERVAL
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::time::advance;

    use super::*;
    use crate::store::testing::logged_by;

    const HALF: Duration = Duration::from_millis(500);

    fn state() -> Arc<TargetState> {
        TargetState::new(&"api".into(), &Target::Echo, &Metrics::new())
    }

    /// Makes attempts fail (`false`) or succeed. Returns the logged messages, each with its number of failures.
    fn logged(state: &Arc<TargetState>, attempts: &[bool]) -> Vec<String> {
        let log = logged_by(|| {
            for is_ok in attempts {
                match is_ok {
                    true => state.start_attempt(None).succeeded(),
                    false => state
                        .start_attempt(None)
                        .failed(Some(&TargetError::connect(&io::ErrorKind::TimedOut.into())), None),
                }
            }
        });
        let number = |line: &str| {
            let (_, rest) = line.split_once("failures=").expect("a number");
            rest.split(' ').next().expect("a number").to_owned()
        };
        let message = |line: &str| {
            let words = ["still fails", "answers again", "fails"].into_iter().find(|words| line.contains(words));
            format!("{} {}", words.expect("a message"), number(line))
        };
        log.lines().inspect(|line| assert!(line.contains(" WARN "), "{line}")).map(message).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_once_a_second() {
        let state = state();
        assert_eq!(logged(&state, &[false; 100]), ["fails 1"]);
        advance(HALF).await;
        assert!(logged(&state, &[false; 100]).is_empty());
        advance(HALF).await;
        assert_eq!(logged(&state, &[false; 100]), ["still fails 200"]);
        assert_eq!(logged(&state, &[true; 100]), ["answers again 300"]);
        assert!(logged(&state, &[true; 100]).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn flapping_target_is_logged_once_a_second() {
        let state = state();
        let flapping = [[false, true]; 100].concat();
        assert_eq!(logged(&state, &flapping), ["fails 1", "answers again 1"]);
        advance(2 * HALF).await;
        assert_eq!(logged(&state, &flapping), ["fails 100"]);
        advance(HALF).await;
        assert!(logged(&state, &flapping).is_empty());
        advance(2 * HALF).await;
        assert_eq!(logged(&state, &[true]), ["answers again 299"]);
    }

    #[tokio::test(start_paused = true)]
    async fn canceled_attempt_is_no_failure() {
        let state = state();
        assert!(logged_by(|| drop(state.start_attempt(None))).is_empty());
        assert!(logged_by(|| state.start_attempt(None).failed(None, None)).is_empty());
        assert!(logged(&state, &[true]).is_empty());
    }
}
