//! Whether requests may use a target.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::balance;
use super::super::eject::{Ejection, FailureKind};
use super::super::settings::Eject;

/// The active checks of the target fail.
const FAILED: u8 = 1;
/// The target drains.
const DRAINING: u8 = 2;
/// The target is ejected.
const EJECTED: u8 = 4;
/// The last request failed.
const FAILING: u8 = 8;
/// The target may be in its slow start.
const SLOW: u8 = 16;
/// Requests use the target although its checks fail.
const USED: u8 = 32;

/// Whether requests use a target, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetCondition {
    /// Requests use the target.
    Usable,
    /// The active checks of the target fail.
    Failed,
    /// The target failed too often. After this time, a single request decides about its return.
    Ejected {
        /// The end of the ejection.
        until: Instant,
        /// The last failure.
        why: String,
    },
    /// An operator drains the target until this time.
    Draining {
        /// The end of the drain.
        until: Instant,
    },
    /// The host name of the target has no known address.
    NoAddress,
}

/// Whether a request may use a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Availability {
    Usable,
    /// The ejection has lasted its time: one request may probe the target.
    ProbeDue,
    /// The target is ejected. Requests use it only if no target is usable.
    LastResort,
    /// The target has no known address. Requests use it only if no target is usable; they fail then.
    NoAddress,
    /// The checks of the target fail. Requests use it only in [panic](super::super::selection::is_panic).
    Failed,
    /// The target drains.
    Excluded,
}

/// The reasons why requests may not use a target.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// While this is zero, requests read only this field.
    reasons: AtomicU8,
    details: Mutex<Details>,
}

#[derive(Debug, Default)]
struct Details {
    drain_until: Option<Instant>,
    ejection: Ejection,
    /// When the target became usable.
    usable_since: Option<Instant>,
}

impl Conditions {
    /// Returns whether a request may use the target. In panic, the results of checks are ignored.
    pub(super) fn availability(&self, now: Instant, in_panic: bool) -> Availability {
        let reasons = self.reasons.load(Relaxed);
        if reasons & (FAILED | DRAINING | EJECTED) == 0 {
            return Availability::Usable;
        }
        let details = self.details.lock();
        let drains = details.drain_until.is_some_and(|until| until > now);
        match details.ejection.ejected_until() {
            _ if drains => Availability::Excluded,
            _ if reasons & FAILED != 0 && !in_panic => Availability::Failed,
            None => Availability::Usable,
            Some((until, _)) if until <= now => Availability::ProbeDue,
            Some(_) => Availability::LastResort,
        }
    }

    /// Returns the condition of the target.
    pub(super) fn current(&self, now: Instant) -> TargetCondition {
        let details = self.details.lock();
        if let Some(until) = details.drain_until.filter(|until| *until > now) {
            return TargetCondition::Draining { until };
        }
        if self.reasons.load(Relaxed) & FAILED != 0 {
            return TargetCondition::Failed;
        }
        match details.ejection.ejected_until() {
            Some((until, why)) => TargetCondition::Ejected { until, why: why.to_owned() },
            None => TargetCondition::Usable,
        }
    }

    /// Records the result of the active checks. Returns `true` if it has changed.
    pub(super) fn set_failed(&self, has_failed: bool, now: Instant) -> bool {
        let has_changed = self.set(FAILED, has_failed) != has_failed;
        // A target that was used all the time needs no slow start.
        if has_changed && !self.set(USED, false) && !has_failed {
            self.start_slowly(&mut self.details.lock(), now);
        }
        has_changed
    }

    /// Records that a request uses the target in panic.
    pub(super) fn set_used_in_panic(&self) {
        if self.reasons.load(Relaxed) & (FAILED | USED) == FAILED {
            self.set(USED, true);
        }
    }

    /// Records a check. Returns how long the target was ejected if the check ends the ejection.
    pub(super) fn record_check(&self, has_passed: bool, rise: u32, now: Instant) -> Option<Duration> {
        if self.reasons.load(Relaxed) & EJECTED == 0 {
            return None;
        }
        let mut details = self.details.lock();
        let time = details.ejection.record_check(has_passed, rise, now)?;
        self.end_ejection(&mut details, now);
        Some(time)
    }

    /// Starts or ends a drain. Returns `true` if that changes when the drain ends.
    pub(super) fn drain_until(&self, until: Option<Instant>) -> bool {
        let mut details = self.details.lock();
        self.set(DRAINING, until.is_some());
        std::mem::replace(&mut details.drain_until, until) != until
    }

    /// Returns until when the target drains.
    pub(super) fn drain(&self) -> Option<Instant> {
        self.details.lock().drain_until
    }

    /// Returns `true` if the target drains until this time.
    pub(super) fn drains_until(&self, until: Instant) -> bool {
        self.details.lock().drain_until == Some(until)
    }

    /// Starts the slow start of a new target.
    pub(super) fn set_new(&self, now: Instant) {
        self.start_slowly(&mut self.details.lock(), now);
    }

    /// Returns the share of the weight that the target gets, in thousandths.
    pub(super) fn share(&self, now: Instant, slow_start: Option<Duration>) -> u32 {
        let Some(slow_start) = slow_start else { return balance::FULL_SHARE };
        if self.reasons.load(Relaxed) & SLOW == 0 {
            return balance::FULL_SHARE;
        }
        let since = self.details.lock().usable_since;
        let share = since.map(|since| balance::share(now.saturating_duration_since(since), slow_start));
        let share = share.unwrap_or(balance::FULL_SHARE);
        if share == balance::FULL_SHARE {
            self.set(SLOW, false);
        }
        share
    }

    /// Records a success.
    pub(super) fn record_success(&self) {
        if self.reasons.load(Relaxed) & FAILING != 0 {
            let mut details = self.details.lock();
            details.ejection.record_success();
            self.set(FAILING, details.ejection.has_failures());
        }
    }

    /// Records a failure. Returns `true` if the target should be ejected.
    pub(super) fn record_failure(&self, kind: FailureKind, settings: &Eject) -> bool {
        let mut details = self.details.lock();
        let is_due = details.ejection.record_failure(kind, settings);
        self.set(FAILING, details.ejection.has_failures());
        is_due
    }

    /// Ejects the target, unless it is ejected. The failure of a probe ejects it again. Returns for how long.
    pub(super) fn eject(
        &self,
        (now, random): (Instant, u64),
        settings: &Eject,
        why: String,
        is_probe: bool,
    ) -> Option<Duration> {
        let mut details = self.details.lock();
        if details.ejection.ejected_until().is_some() && !is_probe {
            return None;
        }
        self.set(EJECTED, true);
        Some(details.ejection.eject(now, settings, random, why))
    }

    /// Starts a probe, if one is due. Returns `true` if it started.
    pub(super) fn start_probe(&self, now: Instant) -> bool {
        self.details.lock().ejection.start_probe(now)
    }

    /// Returns the target after a successful probe. Returns how long it was ejected.
    pub(super) fn probe_succeeded(&self, now: Instant) -> Option<Duration> {
        let mut details = self.details.lock();
        let time = details.ejection.probe_succeeded(now)?;
        self.end_ejection(&mut details, now);
        Some(time)
    }

    fn end_ejection(&self, details: &mut Details, now: Instant) {
        self.set(EJECTED | FAILING, false);
        self.start_slowly(details, now);
    }

    /// Allows another probe.
    pub(super) fn probe_canceled(&self) {
        self.details.lock().ejection.probe_canceled();
    }

    fn start_slowly(&self, details: &mut Details, now: Instant) {
        details.usable_since = Some(now);
        self.set(SLOW, true);
    }

    /// Sets or clears a reason. Returns whether it was set before.
    fn set(&self, reason: u8, is_set: bool) -> bool {
        let before = match is_set {
            true => self.reasons.fetch_or(reason, Relaxed),
            false => self.reasons.fetch_and(!reason, Relaxed),
        };
        before & reason != 0
    }
}
