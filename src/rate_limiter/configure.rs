//! Which rate a limiter has, and how long it exists.

use std::time::Duration;

use super::{RateLimiter, RateLimiterError};
use crate::limit::RateConfig;
use crate::store::SetRate;

/// What becomes of the permits in use when a limiter is given another rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitsInUse {
    /// They stay in use and return when they would have, by the new interval.
    Keep,
    /// They are there again at once; under PER_CLIENT, those of this instance.
    Reset,
}

impl RateLimiter {
    /// Gives the limiter its rate, if it has none; says whether it did. An existing one is not changed in any way, and
    /// what an earlier limiter of the name has granted stays in use until it returns.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn try_set_rate(&self, config: &RateConfig) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.set_rate(&self.limiter, SetRate::Try, config).await)
    }

    /// Gives the limiter this rate, whether it has one or not. All permits are there afterwards: to keep what is in use,
    /// see [`update_rate`](Self::update_rate). Without a keep-alive, an expiry set before is gone.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn set_rate(&self, config: &RateConfig) -> Result<(), RateLimiterError> {
        self.with_context(self.store.set_rate(&self.limiter, SetRate::Reset, config).await).map(drop)
    }

    /// Gives the limiter this rate, whether it has one or not; what is in use stays in use and returns when it would have,
    /// by the new interval. For programs that all configure it alike when they start, in any order.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn ensure_rate(&self, config: &RateConfig) -> Result<(), RateLimiterError> {
        self.with_context(self.store.set_rate(&self.limiter, SetRate::Keep, config).await).map(drop)
    }

    /// Gives the limiter another rate; says whether it had one, without which nothing happens. Under another mode
    /// nothing is in use afterwards, whatever `usage` says, since other buckets count.
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

    /// What the limiter was told; nothing if it has no rate. A rate of Java beyond [`MAX_RATE`](crate::limit::MAX_RATE)
    /// is shown as that.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn config(&self) -> Result<Option<RateConfig>, RateLimiterError> {
        self.with_context(self.store.rate_config(&self.limiter).await)
    }

    /// Has the limiter a rate?
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn exists(&self) -> Result<bool, RateLimiterError> {
        Ok(self.config().await?.is_some())
    }

    /// Lets the limiter vanish after this time, of at least 1 ms; says whether there is one. Its permits in use stay in
    /// use until they return, so that a limiter made again under its name does not grant them twice. A keep-alive
    /// applies again with the next grant.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn expire(&self, after: Duration) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.expire(&self.limiter, Some(after)).await)
    }

    /// Lets the limiter stay; says whether it was going to vanish. A keep-alive applies again with the next grant.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn clear_expire(&self) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.expire(&self.limiter, None).await)
    }

    /// How long the limiter stays unless it is used; nothing if it was not told to vanish.
    ///
    /// # Errors
    /// See [`RateLimiterError`]; `NotInitialised` if there is no such limiter.
    pub async fn time_to_live(&self) -> Result<Option<Duration>, RateLimiterError> {
        self.with_context(self.store.time_to_live(&self.limiter).await)
    }

    /// Removes the limiter and forgets what is in use of it; under PER_CLIENT, by this instance. Says whether there was
    /// anything.
    ///
    /// # Errors
    /// See [`RateLimiterError`].
    pub async fn delete(&self) -> Result<bool, RateLimiterError> {
        self.with_context(self.store.delete(&self.limiter).await)
    }
}
