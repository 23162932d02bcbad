//! Resets buckets for operators: afterwards they are as if they had never been used.
//!
//! A reset also removes what all gateways remember of the buckets: cached refusals, local buckets and debts.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::{Backend, NegativeCache, Redis, Store, StoreError};
use crate::limit::{Charge, Limiter};

impl Store {
    /// Resets the bucket of a charge. Returns `false` if the bucket does not exist.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The bucket may have been reset.
    pub(crate) async fn reset(&self, charge: &Charge) -> Result<bool, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => Ok(memory.reset(charge)),
            Backend::Redis(redis) => reset_in_redis(redis, charge).await,
        }
    }

    /// Resets all buckets of a limit. Returns their number. In Redis it reads the names of all keys step by step, so it takes
    /// a while in a large Redis, but blocks no other command.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. Some buckets may have been reset.
    pub(crate) async fn reset_limit(&self, limiter: &Arc<Limiter>) -> Result<u64, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => Ok(memory.reset_all(limiter).try_into().unwrap_or(u64::MAX)),
            Backend::Redis(redis) => {
                redis.store().announce_reset(limiter, None).await?;
                let fallback = redis.store().fallback();
                let paused = fallback.pause_payments().await;
                fallback.reset_all(limiter);
                drop(paused);
                let removed = redis.store().reset_all(limiter).await;
                redis.forget_all();
                redis.store().announce_reset(limiter, None).await?;
                removed
            }
        }
    }

    /// Follows the resets through other gateways since the last call: forgets what this gateway remembers of the buckets of
    /// these limits.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    pub(crate) async fn follow_resets(&self, limiters: &[Arc<Limiter>]) -> Result<(), StoreError> {
        let Backend::Redis(cache) = &self.0 else { return Ok(()) };
        let redis = cache.store();
        let resets = redis.announced_resets().await?;
        if resets.is_empty() {
            return Ok(());
        }
        cache.forget_all();
        let times = redis.reset_times().await?;
        let paused = redis.fallback().pause_payments().await;
        for reset in &resets {
            redis.follow_reset(reset, limiters, times);
        }
        drop(paused);
        redis.mark_applied(&resets);
        Ok(())
    }
}

async fn reset_in_redis(cache: &NegativeCache<Redis>, charge: &Charge) -> Result<bool, StoreError> {
    let (redis, buckets) = (cache.store(), charge.on_all_buckets());
    redis.announce_reset(&charge.limiter, Some(charge)).await?;
    let paused = redis.fallback().pause_payments().await;
    let removed = try_join_all(buckets.iter().map(|bucket| redis.reset(bucket))).await?;
    redis.forget_locally(charge);
    drop(paused);
    cache.forget_all(); // also refusals at another rate of the client
    redis.announce_reset(&charge.limiter, Some(charge)).await?;
    Ok(removed.into_iter().any(|removed| removed > 0))
}
