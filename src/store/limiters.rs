//! The operations of limiters that the store itself knows the rate of: those of [`RateLimiter`](crate::RateLimiter).

use std::sync::Arc;
use std::time::Duration;

use super::negative_cache::Remote as _;
use super::{Store, StoreError};
use crate::limit::redisson::Sharing;
use crate::limit::{Charge, ClientId, Limiter, Mode, Outcome, Quota, RateConfig};

/// Which limiter, and whose buckets of it if it is PER_CLIENT.
#[derive(Clone, Debug)]
pub(crate) struct LimiterRef {
    limiter: Arc<Limiter>,
    instance: Arc<str>,
}

/// On what condition a limiter is given its rate, and what becomes of the permits in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetRate {
    /// Only if it has none; permits in use from an earlier life stay in use.
    Try,
    /// In any case; nothing is in use afterwards.
    Reset,
    /// In any case; permits in use stay in use.
    Keep,
    /// Only if it has one; permits in use stay in use.
    UpdateAndKeep,
    /// Only if it has one; nothing is in use afterwards.
    UpdateAndReset,
}

// === impl LimiterRef ===

impl LimiterRef {
    pub(crate) fn new(name: &str, instance: Arc<str>) -> Self {
        let quota = Quota::adopted(Sharing::Library);
        // Which it is, the store knows; the client is there for the case that it is this one.
        let limiter = Limiter::new(name.to_owned(), Mode::PerClient, quota);
        Self { limiter: Arc::new(limiter), instance }
    }

    pub(crate) fn name(&self) -> &str {
        &self.limiter.name
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    pub(crate) fn charge(&self, permits: u32) -> Charge {
        let client = Some(ClientId::Instance(Arc::clone(&self.instance)));
        Charge { limiter: Arc::clone(&self.limiter), client, permits, shadow: false }
    }
}

// === impl Store ===

impl Store {
    /// Takes permits, or says how long to wait; 0 permits ask without taking.
    pub(crate) async fn acquire(&self, limiter: &LimiterRef, permits: u32) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                let decision = limiters.acquire(limiter, permits, now)?;
                Ok(Outcome::new(now, vec![decision], &[limiter.charge(permits)]))
            }
            Self::Redis(redis) => redis.take(&[limiter.charge(permits)], None, redis.store().deadline()).await,
        }
    }

    /// Gives a limiter its rate; was the condition met?
    pub(crate) async fn set_rate(
        &self,
        limiter: &LimiterRef,
        how: SetRate,
        config: &RateConfig,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                limiters.set_rate(limiter, how, config, now)
            }
            Self::Redis(redis) => redis.store().set_rate(limiter, how, config).await,
        }
    }

    /// The configuration, if there is one.
    pub(crate) async fn rate_config(&self, limiter: &LimiterRef) -> Result<Option<RateConfig>, StoreError> {
        match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                Ok(limiters.config(limiter, now))
            }
            Self::Redis(redis) => redis.store().rate_config(limiter).await,
        }
    }

    /// Puts permits back; returns how many were in use.
    pub(crate) async fn release(&self, limiter: &LimiterRef, permits: u32) -> Result<u32, StoreError> {
        match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                limiters.release(limiter, permits, now)
            }
            Self::Redis(redis) => redis.store().release(limiter, permits).await,
        }
    }

    /// Lets a limiter vanish after this time, or never; was there one?
    pub(crate) async fn expire(&self, limiter: &LimiterRef, after: Option<Duration>) -> Result<bool, StoreError> {
        let after = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 53));
        match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                Ok(limiters.expire(limiter, after, now))
            }
            Self::Redis(redis) => redis.store().expire(limiter, after).await,
        }
    }

    /// What is left of a limiter's life; nothing if it stays.
    pub(crate) async fn time_to_live(&self, limiter: &LimiterRef) -> Result<Option<Duration>, StoreError> {
        let millis = match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                limiters.time_to_live(limiter, now)?
            }
            Self::Redis(redis) => redis.store().time_to_live(limiter).await?,
        };
        Ok(millis.map(Duration::from_millis))
    }

    /// Removes a limiter with what is in use of it; was there anything?
    pub(crate) async fn delete(&self, limiter: &LimiterRef) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => {
                let (mut limiters, now) = memory.limiters();
                Ok(limiters.delete(limiter, now))
            }
            Self::Redis(redis) => redis.store().delete(limiter).await,
        }
    }
}
