//! The drain signal and its deadline.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Starts a drain. If the trigger is dropped first, the drain never starts.
#[derive(Debug)]
pub struct DrainTrigger(Drain);

/// Observes a drain. Clones observe the same drain.
#[derive(Clone, Debug)]
pub struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    reason: OnceLock<DrainReason>,
    started: Notify,
    deadline: OnceLock<Instant>,
    has_deadline: Notify,
}

/// Why connections drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// The gateway shuts down.
    Shutdown,
    /// A reload removed the listener.
    Removed,
    /// A reload changed the listener: another server accepts from the same socket.
    Replaced,
}

// === impl DrainTrigger ===

impl DrainTrigger {
    /// Starts the drain: no new connection is accepted, and connections that are still open after `limit` are aborted.
    /// If the drain has started without a deadline, only adds the deadline. Further calls have no effect.
    pub fn start(&self, limit: Duration) {
        let state = &self.0.0;
        _ = state.deadline.set(Instant::now() + limit);
        state.has_deadline.notify_waiters();
        self.start_without_deadline(DrainReason::Shutdown);
    }

    /// Starts the drain without a deadline: running requests have no time limit until [`start`](Self::start) is called.
    pub fn start_without_deadline(&self, reason: DrainReason) {
        let state = &self.0.0;
        _ = state.reason.set(reason);
        state.started.notify_waiters();
    }

    /// Returns `true` if no server or connection observes the drain.
    pub fn is_unobserved(&self) -> bool {
        Arc::strong_count(&self.0.0) == 1
    }
}

// === impl Drain ===

impl Drain {
    /// Creates a drain that has not started, and its trigger.
    pub fn new() -> (DrainTrigger, Self) {
        let drain = Self(Arc::default());
        (DrainTrigger(drain.clone()), drain)
    }

    /// Returns `true` if the drain has started. The check is cheap.
    pub fn has_started(&self) -> bool {
        self.reason().is_some()
    }

    /// Returns why the drain has started. Returns `None` if it has not.
    pub(crate) fn reason(&self) -> Option<DrainReason> {
        self.0.reason.get().copied()
    }

    /// Waits until the drain has started.
    pub async fn started(&self) {
        loop {
            // Registers for the notification before the check, so that a start in between is not missed.
            let started = self.0.started.notified();
            if self.has_started() {
                return;
            }
            started.await;
        }
    }

    /// Waits until the deadline of the drain. Waits forever while the drain has no deadline.
    pub(crate) async fn deadline_reached(&self) {
        let deadline = loop {
            let has_deadline = self.0.has_deadline.notified();
            if let Some(deadline) = self.0.deadline.get() {
                break *deadline;
            }
            has_deadline.await;
        };
        sleep_until(deadline).await;
    }
}
