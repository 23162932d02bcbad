//! How many connections to one endpoint may be in use, and who waits for one: first come, first served, for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Failure;
use super::settings::UpstreamSettings;

/// The right to use one connection. Dropped, it goes to whoever has waited longest.
pub(crate) type Seat = OwnedSemaphorePermit;

/// The seats of one endpoint.
#[derive(Debug)]
pub(crate) struct Room {
    /// Fair: while anybody waits, none is free.
    seats: Arc<Semaphore>,
    size: usize,
    waiting: AtomicUsize,
    queue: usize,
    patience: Duration,
}

/// Somebody who waits, as long as this is kept.
struct Waiting<'a>(&'a AtomicUsize);

impl Room {
    pub(crate) fn new(settings: &UpstreamSettings) -> Self {
        let size = settings.max_connections.min(Semaphore::MAX_PERMITS);
        Self {
            seats: Arc::new(Semaphore::new(size)),
            size,
            waiting: AtomicUsize::new(0),
            queue: settings.queue,
            patience: settings.queue_timeout,
        }
    }

    /// A seat, if one is free.
    pub(crate) fn try_enter(&self) -> Option<Seat> {
        Arc::clone(&self.seats).try_acquire_owned().ok()
    }

    /// Waits for a seat. Whoever drops the future leaves the queue.
    pub(crate) async fn enter(&self) -> Result<Seat, Failure> {
        if self.waiting.fetch_add(1, Relaxed) >= self.queue {
            self.waiting.fetch_sub(1, Relaxed);
            return Err(Failure::QueueFull);
        }
        let _waiting = Waiting(&self.waiting);
        let seat = timeout(self.patience, Arc::clone(&self.seats).acquire_owned()).await;
        seat.ok().and_then(Result::ok).ok_or(Failure::QueueTimedOut)
    }

    /// How many more connections are open than may be, where so many are idle.
    pub(crate) fn excess(&self, idle: usize) -> usize {
        (idle + self.size - self.seats.available_permits()).saturating_sub(self.size)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
