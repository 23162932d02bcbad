//! [`RateLimiter`]: a limiter for programs, with the operations and the data of Redisson's RRateLimiter.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate::{Mode, RateConfig, RateLimiter, Store};
//!
//! let store = Store::redis("redis://127.0.0.1:6379")?;
//! let limiter = RateLimiter::new(store, "mails")?;
//! limiter.try_set_rate(&RateConfig::new(Mode::Overall, 10, Duration::from_secs(1))?).await?;
//! limiter.acquire(3).await?; // waits until three permits are there
//! # Ok(())
//! # }
//! ```
//!
//! A Java service with `redisson.getRateLimiter("mails")` shares these permits. What differs is told at each operation;
//! the law is that of [`token_bucket`](crate::limit::token_bucket), and now is the store's clock, never the caller's.

mod cancel_safe;
mod configure;
mod error;
mod instance;
mod wait;

use std::sync::Arc;
use std::time::Duration;

pub use self::configure::PermitsInUse;
pub use self::error::RateLimiterError;
pub use self::instance::{InstanceId, InstanceIdError};
use self::wait::Waiters;
use crate::limit::Wait;
use crate::store::{LimiterRef, Store, StoreError};

/// A limiter limiter in a store. Cheap to clone; clones are one instance, with one id and one waiters of waiters.
///
/// Futures of the operations may be dropped: one that was going to take permits takes none. On Redis they must be run by
/// Tokio, with its timers and IO enabled; on the embedded store only waiting needs Tokio's timers.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    store: Store,
    limiter: LimiterRef,
    waiters: Arc<Waiters>,
}

/// The result of [`RateLimiter::try_acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`granted` says whether the permits were taken"]
#[non_exhaustive]
pub struct Acquisition {
    /// Whether the permits were taken.
    pub granted: bool,
    /// The permits that are there afterwards.
    pub remaining: u32,
    /// The time after which the same request would be granted if no other took permits, to the millisecond; zero if it was
    /// granted. For `Retry-After`, round it up to seconds.
    pub wait: Duration,
}

// === impl RateLimiter ===

impl RateLimiter {
    /// The limiter of this name, which is Redisson's; of an instance with a new [`InstanceId`]. Asks the store nothing.
    ///
    /// # Errors
    /// [`RateLimiterError::NoName`]: the name is empty.
    pub fn new(store: Store, name: &str) -> Result<Self, RateLimiterError> {
        Self::with_instance(store, name, &InstanceId::random())
    }

    /// The limiter of this name, of this instance: under PER_CLIENT all who say the same id share a bucket.
    ///
    /// # Errors
    /// [`RateLimiterError::NoName`]: the name is empty.
    pub fn with_instance(store: Store, name: &str, instance: &InstanceId) -> Result<Self, RateLimiterError> {
        if name.is_empty() {
            return Err(RateLimiterError::NoName);
        }
        Ok(Self { store, limiter: LimiterRef::new(name, instance.shared()), waiters: Arc::default() })
    }

    /// Its name, as it was given.
    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    /// Who it is, where each instance has a bucket of its own.
    pub fn instance(&self) -> &str {
        self.limiter.instance()
    }

    /// Takes `permits`, at least 1, if they are there now. It does not stand in waiters: while others wait it takes what
    /// they cannot.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate::RateLimiter) -> Result<(), tidegate::RateLimiterError> {
    /// if limiter.try_acquire(1).await?.granted {
    ///     // send the mail
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RateLimiterError`]. After a failure of the store the permits may be taken; they return by themselves.
    pub async fn try_acquire(&self, permits: u32) -> Result<Acquisition, RateLimiterError> {
        self.ask(permits).await
    }

    /// How many permits are there now. Changes nothing, neither permits nor expiry.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn available_permits(&self) -> Result<u32, RateLimiterError> {
        Ok(self.with_context(cancel_safe::take(&self.store, &self.limiter, 0).await)?.remaining)
    }

    /// Puts `permits`, at least 1, back before they return by themselves: the newest grants first, of any caller.
    /// Returns how many were in use; more than that cannot be put back. Waiters of this instance are told.
    ///
    /// # Errors
    /// See [`RateLimiterError`]. It is never sent twice; after a failure of the store it is not known whether it happened.
    pub async fn release(&self, permits: u32) -> Result<u32, RateLimiterError> {
        let released = self.with_context(self.store.release(&self.limiter, at_least_one(permits)?).await)?;
        self.waiters.notify_released();
        Ok(released)
    }

    /// Takes permits, or says when they will be there.
    async fn ask(&self, permits: u32) -> Result<Acquisition, RateLimiterError> {
        let decision =
            self.with_context(cancel_safe::take(&self.store, &self.limiter, at_least_one(permits)?).await)?;
        let wait = match decision.wait {
            Wait::Now => Duration::ZERO,
            Wait::Millis(wait) => Duration::from_millis(wait),
            Wait::Never => {
                let rate = self.config().await.ok().flatten();
                return Err(RateLimiterError::ExceedsRate { limiter: self.name().to_owned(), permits, rate });
            }
        };
        Ok(Acquisition { granted: decision.granted, remaining: decision.remaining, wait })
    }

    /// What the store said, with the limiter and the store that an error is about.
    fn with_context<T>(&self, said: Result<T, StoreError>) -> Result<T, RateLimiterError> {
        said.map_err(|error| {
            let limiter = self.name().to_owned();
            match error {
                StoreError::NotInitialised => RateLimiterError::NotInitialised { limiter },
                error => {
                    let (store, cause) = (self.store.address(), self.store.outage());
                    RateLimiterError::Store { limiter, store, error, cause }
                }
            }
        })
    }
}

fn at_least_one(permits: u32) -> Result<u32, RateLimiterError> {
    if permits == 0 { Err(RateLimiterError::NoPermits) } else { Ok(permits) }
}
