//! The operations of Redisson's `RateLimiter`, whose rates are in the store.

use std::sync::Arc;
use std::time::Duration;

use crate::{Backend, Store, StoreError, backend};
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Mode, Quota, RateConfig};
use tidegate_rules::charge::{Charge, ClientId, Limiter, Outcome};

/// The name of a limiter, and the instance whose bucket counts if the limiter is PER_CLIENT.
#[derive(Clone, Debug)]
pub struct LimiterRef {
    limiter: Arc<Limiter>,
    instance: Arc<str>,
}

/// The condition for setting the rate of a limiter, and what happens to the permits in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetRate {
    /// Only if the limiter has no rate. Permits in use of an earlier limiter of this name stay in use.
    Try,
    /// Always. No permits are in use afterwards.
    Reset,
    /// Always. Permits in use stay in use.
    Keep,
    /// Only if the limiter has a rate. Permits in use stay in use.
    UpdateAndKeep,
    /// Only if the limiter has a rate. No permits are in use afterwards.
    UpdateAndReset,
}

// === impl LimiterRef ===

impl LimiterRef {
    /// Creates a reference for the instance of a program.
    pub fn new(name: &str, instance: Arc<str>) -> Self {
        let quota = Quota::adopted(Sharing::Library);
        // Only the store knows the mode; the client is used if the mode is PER_CLIENT.
        let limiter = Limiter::new(name.to_owned(), Mode::PerClient, quota);
        Self { limiter: Arc::new(limiter), instance }
    }

    /// Returns the name of the limiter, without the prefix of the store.
    pub fn name(&self) -> &str {
        &self.limiter.name
    }

    /// Returns the instance's id, which is Redisson's process id.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the charge of this many permits.
    pub fn charge(&self, permits: u32) -> Charge {
        let client = Some(ClientId::Instance(Arc::clone(&self.instance)));
        Charge::new(Arc::clone(&self.limiter), client, permits)
    }
}

// === impl Store ===

impl Store {
    /// Takes permits, or returns how long to wait. Zero permits read the bucket without a charge.
    #[doc(hidden)]
    pub async fn acquire(&self, limiter: &LimiterRef, permits: u32) -> Result<Outcome, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                let decision = limiters.acquire(limiter, permits, now)?;
                Ok(Outcome::new(now, vec![decision], &[limiter.charge(permits)]))
            },
            |redis| redis.take(&[limiter.charge(permits)], redis.deadline()).await
        )
    }

    /// Sets the rate of a limiter. Returns `true` if the condition was met.
    #[doc(hidden)]
    pub async fn set_rate(
        &self,
        limiter: &LimiterRef,
        condition: SetRate,
        config: &RateConfig,
    ) -> Result<bool, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                limiters.set_rate(limiter, condition, config, now)
            },
            |redis| redis.store().set_rate(limiter, condition, config).await
        )
    }

    /// Returns the configuration, if the limiter has one.
    #[doc(hidden)]
    pub async fn rate_config(&self, limiter: &LimiterRef) -> Result<Option<RateConfig>, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                Ok(limiters.config(limiter, now))
            },
            |redis| redis.store().rate_config(limiter).await
        )
    }

    /// Releases permits in use. Returns the number of released permits.
    #[doc(hidden)]
    pub async fn release(&self, limiter: &LimiterRef, permits: u32) -> Result<u32, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                limiters.release(limiter, permits, now)
            },
            |redis| redis.store().release(limiter, permits).await
        )
    }

    /// Sets the limiter's time to live; `None` removes it. Returns `true` if the limiter existed.
    #[doc(hidden)]
    pub async fn expire(&self, limiter: &LimiterRef, after: Option<Duration>) -> Result<bool, StoreError> {
        let after = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 53));
        backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                Ok(limiters.expire(limiter, after, now))
            },
            |redis| redis.store().expire(limiter, after).await
        )
    }

    /// Returns the limiter's time to live; `None` if it does not expire.
    #[doc(hidden)]
    pub async fn time_to_live(&self, limiter: &LimiterRef) -> Result<Option<Duration>, StoreError> {
        let millis = backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                limiters.time_to_live(limiter, now)?
            },
            |redis| redis.store().time_to_live(limiter).await?
        );
        Ok(millis.map(Duration::from_millis))
    }

    /// Deletes a limiter with its permits in use. Returns `true` if there was anything to delete.
    #[doc(hidden)]
    pub async fn delete(&self, limiter: &LimiterRef) -> Result<bool, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut limiters, now) = memory.limiters();
                Ok(limiters.delete(limiter, now))
            },
            |redis| redis.store().delete(limiter).await
        )
    }
}
