//! Resets buckets for operators: afterwards they are as if they had never been used.
//!
//! A reset also removes what this gateway remembers of the buckets: cached refusals, local buckets and debts.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::{Backend, NegativeCache, Redis, Store, StoreError};
use crate::limit::{Charge, ClientId, Limiter};

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
                let fallback = redis.store().fallback();
                let paused = fallback.pause_payments().await;
                fallback.reset_all(limiter);
                drop(paused);
                let removed = redis.store().reset_all(limiter).await;
                redis.forget_all();
                removed
            }
        }
    }
}

async fn reset_in_redis(cache: &NegativeCache<Redis>, charge: &Charge) -> Result<bool, StoreError> {
    let (redis, buckets) = (cache.store(), charge.on_all_buckets());
    let paused = redis.fallback().pause_payments().await;
    let removed = try_join_all(buckets.iter().map(|bucket| redis.reset(bucket))).await?;
    redis.forget_locally(charge);
    drop(paused);
    match charge.client {
        Some(ClientId::Hash(_)) => cache.forget_all(),
        _ => cache.forget(buckets.iter()),
    }
    Ok(removed.into_iter().any(|removed| removed > 0))
}
