//! Whether requests may use a target.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The active checks of the target fail.
const FAILED: u8 = 1;
/// The target drains.
const DRAINING: u8 = 2;

/// Whether requests may use a target, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetCondition {
    /// Requests use the target.
    Usable,
    /// The active checks of the target fail.
    Failed,
    /// An operator drains the target until this time.
    Draining {
        /// The end of the drain.
        until: Instant,
    },
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
}

impl Conditions {
    /// Returns the condition of the target.
    pub(super) fn current(&self, now: Instant) -> TargetCondition {
        let reasons = self.reasons.load(Relaxed);
        if reasons == 0 {
            return TargetCondition::Usable;
        }
        if let Some(until) = self.details.lock().drain_until.filter(|until| *until > now) {
            return TargetCondition::Draining { until };
        }
        if reasons & FAILED != 0 { TargetCondition::Failed } else { TargetCondition::Usable }
    }

    /// Records the result of the active checks. Returns `true` if it has changed.
    pub(super) fn set_failed(&self, has_failed: bool) -> bool {
        self.set(FAILED, has_failed) != has_failed
    }

    /// Starts or ends a drain. Returns `true` if that changes when the drain ends.
    pub(super) fn drain_until(&self, until: Option<Instant>) -> bool {
        let mut details = self.details.lock();
        self.set(DRAINING, until.is_some());
        std::mem::replace(&mut details.drain_until, until) != until
    }

    /// Returns `true` if the target drains until this time.
    pub(super) fn drains_until(&self, until: Instant) -> bool {
        self.details.lock().drain_until == Some(until)
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
