//! The state of each target, shared by all workers: its requests in flight, whether requests may use it, and its
//! failures. Each change and the failures are logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

mod check_outcome;
mod check_record;
mod condition;
mod failure_log;
mod states;
#[cfg(test)]
mod tests;

pub(super) use self::check_outcome::Change;
use self::check_record::CheckRecord;
pub use self::check_record::{CheckReport, LastCheck};
pub(super) use self::condition::Availability;
use self::condition::Conditions;
pub use self::condition::TargetCondition;
use self::failure_log::{FailureLog, Line, Outage, millis};
pub use self::states::TargetStates;
use super::balance::{PENALTY, Penalties, penalty};
use super::eject::FailureKind;
use super::settings::Eject;
use super::target_error::TargetError;
use super::trace::{TargetName, Trace};
use tidegate_limit::random::random;
use tidegate_metrics::{AttemptOutcome, TargetMetrics};

/// The state of one target, or of one address of a target with a host name.
#[derive(Debug)]
pub struct TargetState {
    name: Arc<TargetName>,
    metrics: TargetMetrics,
    /// The requests in flight at the target, until the end of their response bodies.
    in_flight: AtomicUsize,
    /// The recent failures.
    penalties: Penalties,
    conditions: Conditions,
    checks: CheckRecord,
    /// Whether the target is failing. While it is not, a success reads only this field.
    is_failing: AtomicBool,
    log: Mutex<FailureLog>,
}

/// The failures of a target since its last response.
#[derive(Clone, Debug)]
pub struct TargetFailure {
    /// When the target began to fail.
    pub since: Instant,
    /// The number of failures.
    pub failures: u64,
    /// The last failure.
    pub last_error: String,
}

/// An attempt at a target that is in flight. On drop, it counts as canceled.
pub(super) struct InFlightAttempt<'a> {
    /// `None` once the attempt has ended. Kept small, because each request in flight has one.
    target: Option<&'a TargetState>,
    /// Whether the attempt decides about the return of an ejected target.
    is_probe: bool,
}

/// An ejection that a failure causes, if the limits of the upstream allow it.
#[must_use = "the target is ejected only by `eject`"]
pub(super) struct DueEjection<'a> {
    /// The target.
    pub(super) target: &'a TargetState,
    settings: &'a Eject,
    why: String,
}

// === impl TargetState ===

impl TargetState {
    /// Creates the state of a target that is usable.
    fn new(name: TargetName, metrics: TargetMetrics) -> Self {
        Self {
            name: Arc::new(name),
            metrics,
            in_flight: AtomicUsize::new(0),
            penalties: Penalties::default(),
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
    pub(super) fn for_test(metrics: &tidegate_metrics::Metrics) -> Arc<Self> {
        let metrics = metrics.target("api", "builtin:echo");
        TargetStates::default().get_or_create(&"api".into(), "builtin:echo", None, &metrics, false)
    }

    /// Returns the number of requests in flight, until the end of their response bodies.
    pub fn in_flight(&self) -> usize {
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
    pub fn name(&self) -> &TargetName {
        &self.name
    }

    /// Returns the record of the active checks.
    pub fn checks(&self) -> &CheckRecord {
        &self.checks
    }

    /// Counts an active check. Passed checks can end an ejection. `rise` is the number of passed checks in a row that show
    /// that the target has recovered.
    pub(super) fn record_check(&self, has_passed: bool, rise: u32) {
        self.metrics.checked(has_passed);
        if let Some(time) = self.conditions.record_check(has_passed, rise, Instant::now()) {
            self.log_return(time, "health checks");
        }
    }

    /// Counts an active check whose failure says nothing about the target.
    pub(super) fn discard_check(&self) {
        self.metrics.check_discarded();
        self.checks.discard();
    }

    /// Records that a request uses the target in panic.
    pub(super) fn set_used_in_panic(&self) {
        self.conditions.set_used_in_panic();
    }

    /// Sets the metric of usable targets.
    pub(super) fn set_usable(&self, is_usable: bool) {
        self.metrics.set_usable(is_usable);
    }

    /// Sets whether the active checks fail. `result` is the last result, for the log.
    pub(crate) fn set_failed_by_checks(&self, has_failed: bool, result: &str) {
        if self.conditions.set_failed(has_failed, Instant::now()) {
            let TargetName { upstream, target, address } = &*self.name;
            let address = address.map(tracing::field::display);
            let outcome = if has_failed { "fail" } else { "succeed again" };
            tracing::warn!(%upstream, target, address, result, "health checks of upstream target {outcome}");
        }
    }

    /// Forgets the results of the active checks, because the target is not checked any more.
    pub(super) fn forget_checks(&self) {
        self.checks.reset();
        self.conditions.set_failed(false, Instant::now());
    }

    /// Sends no new requests to the target until this time. `None` ends the drain.
    pub fn drain_until(&self, until: Option<Instant>) {
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
    pub fn end_drain(&self, until: Instant) {
        if self.conditions.drains_until(until) {
            self.drain_until(None);
        }
    }

    /// Returns the requests in flight and the recent failures.
    pub(super) fn load(&self, now: Instant) -> u64 {
        self.in_flight() as u64 + self.penalties.count(now)
    }

    /// Returns whether a request may use the target. In panic, the results of checks are ignored.
    pub(super) fn availability(&self, now: Instant, in_panic: bool) -> Availability {
        self.conditions.availability(now, in_panic)
    }

    /// Returns the share of the weight that the target gets, in thousandths.
    pub(super) fn share(&self, now: Instant, slow_start: Option<Duration>) -> u32 {
        self.conditions.share(now, slow_start)
    }

    /// Starts a probe of an ejected target, if one is due. Returns `true` if it started.
    pub(super) fn start_probe(&self, now: Instant) -> bool {
        self.conditions.start_probe(now)
    }

    /// Allows another probe.
    pub(super) fn cancel_probe(&self) {
        self.conditions.probe_canceled();
    }

    /// Starts an attempt. With `is_probe`, a probe has been started.
    pub(super) fn start_attempt(&self, trace: Option<&Trace>, is_probe: bool) -> InFlightAttempt<'_> {
        if let Some(trace) = trace {
            trace.record_target(&self.name);
        }
        InFlightAttempt { target: Some(self), is_probe }
    }

    /// Returns the failures since the last response. Returns `None` if the target responds.
    pub fn failure(&self) -> Option<TargetFailure> {
        let log = self.log.lock();
        let Outage { since, failures, last_error, .. } = log.outage.as_ref()?;
        Some(TargetFailure { since: *since, failures: *failures, last_error: last_error.clone() })
    }

    /// Records that a response broke off after its head.
    pub(super) fn record_broken_body(&self, error: &impl ToString) {
        self.record_failure(&TargetError::body(error));
    }

    /// Records a result for the ejection. `None` is a success. Returns the ejection that a failure causes.
    fn record_result<'a>(
        &'a self,
        is_probe: bool,
        failure: Option<FailureKind>,
        eject: Option<&'a Eject>,
        why: impl FnOnce() -> String,
    ) -> Option<DueEjection<'a>> {
        match (failure, eject) {
            (None, _) if is_probe => self.return_from_ejection(),
            (None, _) => self.conditions.record_success(),
            (Some(_), Some(settings)) if is_probe => self.eject(settings, &why(), true),
            (Some(kind), Some(settings)) if self.conditions.record_failure(kind, settings) => {
                return Some(DueEjection { target: self, settings, why: why() });
            }
            // After a reload without `eject`, a target stays ejected until a probe succeeds.
            (Some(_), None) if is_probe => self.cancel_probe(),
            (Some(_), _) => {}
        }
        None
    }

    fn eject(&self, settings: &Eject, why: &str, is_probe: bool) {
        let random = u64::from_ne_bytes(random());
        if let Some(time) = self.conditions.eject((Instant::now(), random), settings, why.to_owned(), is_probe) {
            let TargetName { upstream, target, address } = &*self.name;
            let (address, seconds) = (address.map(tracing::field::display), time.as_secs());
            tracing::warn!(%upstream, target, address, seconds, why, "upstream target is ejected");
        }
    }

    fn return_from_ejection(&self) {
        if let Some(time) = self.conditions.probe_succeeded(Instant::now()) {
            self.log_return(time, "a request");
        }
    }

    /// `because` names the success that ended the ejection.
    fn log_return(&self, time: Duration, because: &str) {
        let TargetName { upstream, target, address } = &*self.name;
        let (address, ejected_ms) = (address.map(tracing::field::display), millis(time));
        tracing::warn!(%upstream, target, address, ejected_ms, because, "upstream target returns after an ejection");
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

impl<'a> InFlightAttempt<'a> {
    /// Ends the attempt with the head of a response.
    pub(super) fn responded(
        mut self,
        status: StatusCode,
        fields: &HeaderMap,
        eject: Option<&'a Eject>,
    ) -> Option<DueEjection<'a>> {
        let target = self.target.take()?;
        target.metrics.attempted(AttemptOutcome::Ok);
        target.record_success();
        if status.is_server_error() {
            target.penalties.add(Instant::now(), penalty(fields));
        }
        // A 429 concerns the client. The other server errors are mostly about the request, for example 501.
        if matches!(status.as_u16(), 500 | 502 | 503 | 504) {
            return target
                .record_result(self.is_probe, Some(FailureKind::Request), eject, || format!("status {status}"));
        }
        target.record_result(self.is_probe, None, eject, String::new)
    }

    /// Ends the attempt with an error of the target. `None` means that the client failed; the attempt then counts as
    /// canceled.
    pub(super) fn failed(
        mut self,
        error: Option<&TargetError>,
        trace: Option<&Trace>,
        eject: Option<&'a Eject>,
    ) -> Option<DueEjection<'a>> {
        let error = error?;
        if let Some(trace) = trace {
            trace.record_failure(error.outcome.as_str());
        }
        let target = self.target.take()?;
        target.metrics.attempted(error.outcome);
        target.record_failure(error);
        let kind = error.failure_kind();
        if kind.is_some() || error.is_invalid_response() {
            target.penalties.add(Instant::now(), PENALTY);
        }
        match kind {
            None => {
                if self.is_probe {
                    target.cancel_probe();
                }
                None
            }
            kind => target.record_result(self.is_probe, kind, eject, || error.error.clone()),
        }
    }
}

impl Drop for InFlightAttempt<'_> {
    fn drop(&mut self) {
        if let Some(target) = self.target {
            target.metrics.attempted(AttemptOutcome::Canceled);
            if self.is_probe {
                target.cancel_probe();
            }
        }
    }
}

// === impl DueEjection ===

impl DueEjection<'_> {
    /// Ejects the target.
    pub(super) fn eject(self) {
        self.target.eject(self.settings, &self.why, false);
    }
}
