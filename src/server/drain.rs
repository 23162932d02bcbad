//! The drain signal and its deadline.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Starts a drain. If the trigger is dropped, the drain never starts.
#[derive(Debug)]
pub(crate) struct DrainTrigger(Drain);

/// Observes a drain. Clones observe the same drain.
#[derive(Clone, Debug)]
pub(crate) struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    deadline: OnceLock<Instant>,
    started: Notify,
}

// === impl DrainTrigger ===

impl DrainTrigger {
    /// Starts the drain: no new connection is accepted, and connections that are still open after `limit` are aborted.
    /// Further calls have no effect.
    pub(crate) fn start(&self, limit: Duration) {
        _ = self.0.0.deadline.set(Instant::now() + limit);
        self.0.0.started.notify_waiters();
    }
}

// === impl Drain ===

impl Drain {
    /// Creates a drain that has not started, and its trigger.
    pub(crate) fn new() -> (DrainTrigger, Self) {
        let drain = Self(Arc::default());
        (DrainTrigger(drain.clone()), drain)
    }

    /// Returns `true` if the drain has started. The check is cheap.
    pub(crate) fn has_started(&self) -> bool {
        self.0.deadline.get().is_some()
    }

    /// Waits until the drain has started. Returns its deadline.
    pub(crate) async fn started(&self) -> Instant {
        loop {
            // Registers for the notification before the check, so that a start in between is not missed.
            let started = self.0.started.notified();
            if let Some(deadline) = self.0.deadline.get() {
                return *deadline;
            }
            started.await;
        }
    }

    /// Waits until the deadline of the drain.
    pub(crate) async fn deadline_reached(&self) {
        let deadline = self.started().await;
        sleep_until(deadline).await;
    }
}
