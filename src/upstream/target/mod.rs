//! The state of each target, shared by all workers: its requests in flight, whether requests may use it, and its
//! failures. Each change and the failures are logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::time::Instant;

mod condition;
mod failure_log;
mod states;
#[cfg(test)]
mod tests;

use self::condition::Conditions;
pub(crate) use self::condition::TargetCondition;
use self::failure_log::{FailureLog, Line, Outage, millis};
pub(crate) use self::states::TargetStates;
use super::check::CheckRecord;
use super::target_error::TargetError;
use super::trace::{TargetName, Trace};
use crate::metrics::{AttemptOutcome, TargetMetrics};

/// The state of one target, or of one address of a target with a host name.
#[derive(Debug)]
pub(crate) struct TargetState {
    name: Arc<TargetName>,
    metrics: TargetMetrics,
    /// The requests in flight at the target, until the end of their response bodies.
    in_flight: AtomicUsize,
    conditions: Conditions,
    checks: CheckRecord,
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

// === impl TargetState ===

impl TargetState {
    /// Creates the state of a target that is usable.
    fn new(name: TargetName, metrics: TargetMetrics) -> Self {
        Self {
            name: Arc::new(name),
            metrics,
            in_flight: AtomicUsize::new(0),
            conditions: Conditions::default(),
            checks: CheckRecord::default(),
            is_failing: AtomicBool::new(false),
            log: Mutex::default(),
        }
    }

    /// Creates a state for the requests of active checks. They do not count as requests in flight of this target, and
    /// change only the outcome of the checks.
    pub(super) fn for_checks(&self) -> Arc<Self> {
        Arc::new(Self::new((*self.name).clone(), self.metrics.clone()))
    }

    /// Creates the state of a target for tests.
    #[cfg(test)]
    pub(super) fn for_test(metrics: &crate::metrics::Metrics) -> Arc<Self> {
        let metrics = metrics.target("api", "builtin:echo");
        TargetStates::default().get_or_create(&"api".into(), "builtin:echo", None, &metrics)
    }

    /// Returns the number of requests in flight, until the end of their response bodies.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Counts a request in flight, until [`request_ended`](Self::request_ended).
    pub(super) fn request_started(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Records the end of a request, including its response body.
    pub(super) fn request_ended(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Returns whether requests may use the target.
    pub(crate) fn condition(&self, now: Instant) -> TargetCondition {
        self.conditions.current(now)
    }

    /// Returns the names of the target.
    pub(crate) fn name(&self) -> &TargetName {
        &self.name
    }

    /// Returns the record of the active checks.
    pub(crate) fn checks(&self) -> &CheckRecord {
        &self.checks
    }

    /// Counts an active check.
    pub(super) fn count_check(&self, has_passed: bool) {
        self.metrics.checked(has_passed);
    }

    /// Sets the metric of usable targets.
    pub(super) fn set_usable(&self, is_usable: bool) {
        self.metrics.set_usable(is_usable);
    }

    /// Sets whether the active checks fail. `result` is the last result, for the log.
    pub(crate) fn set_failed_by_checks(&self, has_failed: bool, result: &str) {
        if self.conditions.set_failed(has_failed) {
            let TargetName { upstream, target, address } = &*self.name;
            let address = address.map(tracing::field::display);
            let outcome = if has_failed { "fail" } else { "succeed again" };
            tracing::warn!(%upstream, target, address, result, "health checks of upstream target {outcome}");
        }
    }

    /// Sends no new requests to the target until this time. `None` ends the drain.
    pub(crate) fn drain_until(&self, until: Option<Instant>) {
        if self.conditions.drain_until(until) {
            let TargetName { upstream, target, address } = &*self.name;
            let address = address.map(tracing::field::display);
            let seconds = until.map(|until| until.saturating_duration_since(Instant::now()).as_secs());
            match seconds {
                Some(seconds) => tracing::warn!(%upstream, target, address, seconds, "upstream target drains"),
                None => tracing::warn!(%upstream, target, address, "upstream target no longer drains"),
            }
        }
    }

    /// Ends a drain that was to last until this time. A drain that an operator has changed continues.
    pub(crate) fn end_drain(&self, until: Instant) {
        if self.conditions.drains_until(until) {
            self.drain_until(None);
        }
    }

    /// Starts an attempt.
    pub(super) fn start_attempt(&self, trace: Option<&Trace>) -> InFlightAttempt<'_> {
        if let Some(trace) = trace {
            trace.record_target(&self.name);
        }
        InFlightAttempt { target: Some(self) }
    }

    /// Returns the failures since the last response. Returns `None` if the target responds.
    pub(crate) fn failure(&self) -> Option<TargetFailure> {
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
                address = self.name.address.map(tracing::field::display),
                failures = ended.failures,
                failing_ms = millis(now - ended.since),
                last_error = ended.last_error,
                "upstream target answers again"
            );
        }
    }

    fn record_failure(&self, failure: &TargetError) {
        let (TargetError { phase, error, .. }, TargetName { upstream, target, address }) = (failure, &*self.name);
        let address = address.map(tracing::field::display);
        let line = self.log.lock().record(failure, Instant::now());
        self.is_failing.store(true, Relaxed);
        match line {
            Some(Line { message, failures, total, failing_ms }) => tracing::warn!(
                %upstream, target, address, phase, error, failures, total, failing_ms, "{message}"
            ),
            None => tracing::debug!(%upstream, target, address, phase, error, "upstream target fails"),
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
