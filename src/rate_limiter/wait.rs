//! Waiting for permits, first come first served.
//!
//! The first in waiters asks the store, learns to the millisecond when its permits will be there, and asks again then; the
//! others wait for it. So a limiter's waiters cost the store one call for each grant, however many they are, and one
//! who needs many permits is not overtaken for ever by those who need few. A waiter that leaves has not been charged.
//!
//! Other programs do not announce what they release, so the first in waiters asks ten times a second.

use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Acquisition, RateLimiter, RateLimiterError, at_least_one};

/// The waiters of one instance.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Held by the first in waiters; Tokio's mutex hands it on in the order in which it was asked for.
    first: Mutex<()>,
    released: Notify,
}

/// After this long a waiter asks again: another program may have released permits.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

impl RateLimiter {
    /// Takes `permits`, at least 1, as soon as they are there, however long that takes.
    ///
    /// # Errors
    /// See [`RateLimiterError`]. Waiting ends with a failure of the store.
    pub async fn acquire(&self, permits: u32) -> Result<(), RateLimiterError> {
        at_least_one(permits)?;
        let _first = self.waiters.first.lock().await;
        self.acquire_as_first(permits, None).await?;
        Ok(())
    }

    /// Takes `permits`, at least 1, if they are there within `timeout`, of which standing in waiters is a part. Says no as
    /// soon as it knows: it waits for nothing that returns too late by itself.
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
            // The wait began when the store decided, which was not before it was asked.
            if deadline.is_some_and(|deadline| asked_at.checked_add(wait).is_none_or(|at| at > deadline)) {
                return Ok(false);
            }
            let due = Instant::now() + wait.min(LONGEST_WAIT);
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.waiters.released.notified() => {}
            }
        }
    }
}

impl Waiters {
    /// Permits were put back: the first in waiters may have them.
    pub(super) fn notify_released(&self) {
        self.released.notify_one();
    }
}
