//! [`RateLimiter`]: a limiter for programs, with the operations and the data of Redisson's RRateLimiter.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate_layer::redisson::{Mode, RateConfig, RateLimiter};
//! use tidegate_layer::Store;
//!
//! let store = Store::redis("redis://127.0.0.1:6379")?;
//! let limiter = RateLimiter::new(store, "mails")?;
//! limiter.ensure_rate(&RateConfig::new(Mode::Overall, 10, Duration::from_secs(1))?).await?;
//! limiter.acquire(3).await?; // waits until three permits are there
//! # Ok(())
//! # }
//! ```
//!
//! A Java service with `redisson.getRateLimiter("mails")` shares these permits. The documentation of each operation
//! lists the differences. The algorithm is [`token_bucket`](tidegate_limit::algorithm::token_bucket), and the store's clock
//! decides.

mod cancel_safe;
mod configure;
mod error;
mod instance;
mod wait;

use std::sync::Arc;
use std::time::Duration;

pub use self::configure::{PermitsInUse, TrySetRate};
pub use self::error::RateLimiterError;
pub use self::instance::{InstanceId, InstanceIdError};
use self::wait::Waiters;
use tidegate_limit::Wait;
pub use tidegate_limit::{Mode, RateConfig, RateConfigError};
use tidegate_store::{LimiterRef, Store, StoreError};

/// A limiter in a store, with the operations and the data of Redisson's `RRateLimiter`. Cheap to clone: clones are one
/// instance, with one id and one queue of waiters.
///
/// Futures of the operations can be dropped at any time: a dropped operation takes no permits. A store in Redis needs
/// a Tokio runtime with timers and IO; the embedded store needs timers only for waiting.
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
    /// The number of available permits afterwards.
    pub remaining: u32,
    /// The time after which the same request would be granted if no other request took permits; zero if it was
    /// granted. Exact to the millisecond. Round it up to seconds for `Retry-After`.
    pub wait: Duration,
}

// === impl RateLimiter ===

impl RateLimiter {
    /// Creates a limiter with Redisson's name for it, and a new [`InstanceId`]. Does not call the store.
    ///
    /// # Errors
    /// [`RateLimiterError::NoName`]: the name is empty.
    pub fn new(store: Store, name: &str) -> Result<Self, RateLimiterError> {
        Self::with_instance(store, name, &InstanceId::random())
    }

    /// Creates a limiter with this instance id. Under PER_CLIENT, instances with equal ids share a bucket.
    ///
    /// # Errors
    /// [`RateLimiterError::NoName`]: the name is empty.
    pub fn with_instance(store: Store, name: &str, instance: &InstanceId) -> Result<Self, RateLimiterError> {
        if name.is_empty() {
            return Err(RateLimiterError::NoName);
        }
        Ok(Self { store, limiter: LimiterRef::new(name, instance.to_arc()), waiters: Arc::default() })
    }

    /// Returns the name of the limiter.
    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    /// Returns the instance id, which selects the bucket under PER_CLIENT.
    pub fn instance(&self) -> &str {
        self.limiter.instance()
    }

    /// Takes `permits`, at least 1, if they are available now. Does not queue: it may overtake waiters that need more
    /// permits.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_layer::redisson::RateLimiter) -> Result<(), tidegate_layer::redisson::RateLimiterError> {
    /// if limiter.try_acquire(1).await?.granted {
    ///     // send the mail
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RateLimiterError`]. After a failure of the store, the permits may have been taken; then they return with
    /// time. A limiter without a rate is an error.
    pub async fn try_acquire(&self, permits: u32) -> Result<Acquisition, RateLimiterError> {
        self.ask(permits).await
    }

    /// Returns the number of available permits. Changes neither permits nor expiry.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn available_permits(&self) -> Result<u32, RateLimiterError> {
        Ok(self.with_context(cancel_safe::take(&self.store, &self.limiter, 0).await)?.remaining)
    }

    /// Releases `permits`, at least 1, before they return with time: the newest grants first, of any caller. Returns
    /// the number of released permits, which is lower if fewer permits were in use. Wakes the waiters of this instance.
    ///
    /// # Errors
    /// See [`RateLimiterError`]. The call is never repeated; after a failure of the store, the permits may have been
    /// released.
    pub async fn release(&self, permits: u32) -> Result<u32, RateLimiterError> {
        let released = self.with_context(self.store.release(&self.limiter, at_least_one(permits)?).await)?;
        self.waiters.notify_released();
        Ok(released)
    }

    /// Takes permits, or returns how long to wait.
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

    /// Adds the limiter and the store to an error of the store.
    fn with_context<T>(&self, result: Result<T, StoreError>) -> Result<T, RateLimiterError> {
        result.map_err(|error| {
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
