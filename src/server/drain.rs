//! The signal to come to an end, and until when.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Starts a drain; dropped, it never does.
#[derive(Debug)]
pub struct DrainTrigger(watch::Sender<Option<Instant>>);

/// Sees a drain start. Clones see the same.
#[derive(Clone, Debug)]
pub struct Drain(watch::Receiver<Option<Instant>>);

// === impl DrainTrigger ===

impl DrainTrigger {
    /// From now on, nothing new begins; after `limit`, what still runs is ended.
    pub fn start(&self, limit: Duration) {
        self.0.send_replace(Some(Instant::now() + limit));
    }
}

// === impl Drain ===

impl Drain {
    /// A drain that has not started, and its trigger.
    pub fn new() -> (DrainTrigger, Self) {
        let (sender, receiver) = watch::channel(None);
        (DrainTrigger(sender), Self(receiver))
    }

    /// Returns once the drain has started.
    pub async fn started(&mut self) {
        self.deadline().await;
    }

    /// Returns at the deadline of a drain that has started.
    pub async fn over(&mut self) {
        let deadline = self.deadline().await;
        sleep_until(deadline).await;
    }

    async fn deadline(&mut self) -> Instant {
        let deadline = self.0.wait_for(Option::is_some).await.ok().and_then(|deadline| *deadline);
        match deadline {
            Some(deadline) => deadline,
            // Nobody is left who could start it.
            None => std::future::pending().await,
        }
    }
}
