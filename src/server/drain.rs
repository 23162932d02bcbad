//! The drain signal and its deadline.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Starts a drain. On drop, the drain never starts.
#[derive(Debug)]
pub(crate) struct DrainTrigger(Drain);

/// Observes a drain. Clones observe the same one.
#[derive(Clone, Debug)]
pub(crate) struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    deadline: OnceLock<Instant>,
    started: Notify,
}

// === impl DrainTrigger ===

impl DrainTrigger {
    /// Starts the drain: nothing new begins from now on, and what still runs after `limit` is aborted. A drain starts once.
    pub(crate) fn start(&self, limit: Duration) {
        _ = self.0.0.deadline.set(Instant::now() + limit);
        self.0.0.started.notify_waiters();
    }
}

// === impl Drain ===

impl Drain {
    /// A drain that has not started, and its trigger.
    pub(crate) fn new() -> (DrainTrigger, Self) {
        let drain = Self(Arc::default());
        (DrainTrigger(drain.clone()), drain)
    }

    /// Whether the drain has started; costs nothing to ask.
    pub(crate) fn has_started(&self) -> bool {
        self.0.deadline.get().is_some()
    }

    /// Returns once the drain has started, with its deadline.
    pub(crate) async fn started(&self) -> Instant {
        loop {
            // It hears of a start from here on, whether it is polled or not.
            let started = self.0.started.notified();
            if let Some(deadline) = self.0.deadline.get() {
                return *deadline;
            }
            started.await;
        }
    }

    /// Returns at the deadline of a drain that has started.
    pub(crate) async fn over(&self) {
        let deadline = self.started().await;
        sleep_until(deadline).await;
    }
}
