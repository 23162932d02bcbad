//! Waits for permits, in order of arrival.
//!
//! The first waiter asks the store, learns when its permits will be available, and asks again then. The other waiters
//! wait for the first. So each grant costs the store one call, regardless of the number of waiters, and requests for
//! few permits cannot starve a request for many. A waiter that is dropped is not charged.
//!
//! Other programs do not announce releases, so the first waiter asks ten times a second.

use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Acquisition, RateLimiter, RateLimiterError, at_least_one};

/// The waiters of one instance.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Held by the first waiter. Tokio's mutex is fair.
    first: Mutex<()>,
    released: Notify,
}

/// A waiter asks again after this time, since another program may have released permits.
const MAX_WAIT: Duration = Duration::from_millis(100);

impl RateLimiter {
    /// Takes `permits`, at least 1. Waits as long as necessary.
    ///
    /// # Errors
    /// See [`RateLimiterError`]. A failure of the store ends the wait.
    pub async fn acquire(&self, permits: u32) -> Result<(), RateLimiterError> {
        at_least_one(permits)?;
        let _first = self.waiters.first.lock().await;
        self.acquire_as_first(permits, None).await?;
        Ok(())
    }

    /// Takes `permits`, at least 1, if they are available within `timeout`, including the time behind other waiters.
    /// Returns `false` immediately if they will not be available in time.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn try_acquire_for(&self, permits: u32, timeout: Duration) -> Result<bool, RateLimiterError> {
        at_least_one(permits)?;
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.acquire(permits).await.map(|()| true);
        };
        match timeout_at(deadline, self.waiters.first.lock()).await {
            Ok(_first) => self.acquire_as_first(permits, Some(deadline)).await,
            Err(_) => Ok(false),
        }
    }

    async fn acquire_as_first(&self, permits: u32, deadline: Option<Instant>) -> Result<bool, RateLimiterError> {
        loop {
            let asked_at = Instant::now();
            let Acquisition { granted: false, wait, .. } = self.ask(permits).await? else { return Ok(true) };
            // The wait starts at the decision, which is not before `asked_at`.
            if deadline.is_some_and(|deadline| asked_at.checked_add(wait).is_none_or(|at| at > deadline)) {
                return Ok(false);
            }
            let due = Instant::now() + wait.min(MAX_WAIT);
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.waiters.released.notified() => {}
            }
        }
    }
}

impl Waiters {
    /// Wakes the first waiter after a release.
    pub(super) fn notify_released(&self) {
        self.released.notify_one();
    }
}
