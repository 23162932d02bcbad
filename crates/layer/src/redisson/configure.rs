//! Configures the rate and the expiry of a limiter.

use std::time::Duration;

use super::{RateLimiter, RateLimiterError};
use tidegate_limit::RateConfig;
use tidegate_store::SetRate;

/// The effect of a new rate on the permits in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitsInUse {
    /// They stay in use, and return as before but by the new interval.
    Keep,
    /// They are available again immediately; under PER_CLIENT, only the permits of this instance.
    Reset,
}

/// The result of [`RateLimiter::try_set_rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "an existing limiter keeps its rate; `ensure_rate` changes it"]
pub enum TrySetRate {
    /// The limiter had no rate, and has this rate now.
    Set,
    /// The limiter has a rate, perhaps another one, and keeps it.
    Kept,
}

impl RateLimiter {
    /// Sets the rate if the limiter has none, like Redisson's `trySetRate`. An existing limiter does not change in any
    /// way, and permits in use of an earlier limiter with this name stay in use.
    ///
    /// A new version of a program does not change the rate with this method. Programs that set their rate at the start use
    /// [`ensure_rate`](Self::ensure_rate).
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn try_set_rate(&self, config: &RateConfig) -> Result<TrySetRate, RateLimiterError> {
        let is_set = self.with_context(self.store.set_rate(&self.limiter, SetRate::Try, config).await)?;
        Ok(if is_set { TrySetRate::Set } else { TrySetRate::Kept })
    }

    /// Sets the rate, like Redisson's `setRate`, whether the limiter has one or not. All permits are available afterwards;
    /// [`update_rate`](Self::update_rate) can keep them in use. Without a keep-alive, an earlier expiry is removed.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn set_rate(&self, config: &RateConfig) -> Result<(), RateLimiterError> {
        self.with_context(self.store.set_rate(&self.limiter, SetRate::Reset, config).await).map(drop)
    }

    /// Sets the rate, whether the limiter has one or not. Permits in use stay in use, and return as before but by the
    /// new interval. For programs that all set the same rate when they start.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn ensure_rate(&self, config: &RateConfig) -> Result<(), RateLimiterError> {
        self.with_context(self.store.set_rate(&self.limiter, SetRate::Keep, config).await).map(drop)
    }

    /// Changes the rate if the limiter has one, like Redisson's `updateRate`. Returns `true` if it did. If the mode
    /// changes, no permits are in use afterwards, regardless of `usage`, since other buckets count.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn update_rate(&self, config: &RateConfig, usage: PermitsInUse) -> Result<bool, RateLimiterError> {
        let how = match usage {
            PermitsInUse::Keep => SetRate::UpdateAndKeep,
            PermitsInUse::Reset => SetRate::UpdateAndReset,
        };
        self.with_context(self.store.set_rate(&self.limiter, how, config).await)
    }

    /// Returns the configuration; `None` if the limiter has no rate. A rate above 2^31 that Java has set is returned as
    /// 2^31, and an interval above 366 days as 366 days.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn config(&self) -> Result<Option<RateConfig>, RateLimiterError> {
        self.with_context(self.store.rate_config(&self.limiter).await)
    }

    /// Returns `true` if the limiter has a rate.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn exists(&self) -> Result<bool, RateLimiterError> {
        Ok(self.config().await?.is_some())
    }

    /// Makes the limiter expire after this time, rounded down to milliseconds and at least 1 ms. Returns `true` if the
    /// limiter exists. Its permits stay in use until they return, so that a new limiter with the same name does not
    /// grant them twice. A keep-alive applies again with the next grant.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn expire(&self, after: Duration) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.expire(&self.limiter, Some(after)).await)
    }

    /// Removes the expiry. Returns `true` if there was one. A keep-alive applies again with the next grant.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn clear_expire(&self) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.expire(&self.limiter, None).await)
    }

    /// Returns when the limiter expires unless it is used; `None` if it does not expire.
    ///
    /// # Errors
    /// See [`RateLimiterError`]; [`NotInitialised`](RateLimiterError::NotInitialised) if there is no such limiter.
    pub async fn time_to_live(&self) -> Result<Option<Duration>, RateLimiterError> {
        self.with_context(self.store.time_to_live(&self.limiter).await)
    }

    /// Deletes the limiter and its permits in use; under PER_CLIENT, only the permits of this instance. Returns `true`
    /// if there was anything to delete.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn delete(&self) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.delete(&self.limiter).await)
    }
}
