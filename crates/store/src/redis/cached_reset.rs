//! Resets buckets in Redis, and what this gateway remembers of them: cached refusals, local buckets and local grants.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::Redis;
use crate::StoreError;
use crate::negative_cache::NegativeCache;
use tidegate_rules::charge::{Charge, Limiter};

impl NegativeCache<Redis> {
    /// Resets the bucket of a charge. Returns `false` if the bucket does not exist.
    pub async fn reset(&self, charge: &Charge) -> Result<bool, StoreError> {
        let (redis, buckets) = (self.store(), charge.on_all_buckets());
        redis.announce_reset(&charge.limiter, Some(charge)).await?;
        let paused = redis.fallback().pause_late_charges().await;
        let removed = try_join_all(buckets.iter().map(|bucket| redis.reset(bucket))).await?;
        redis.forget_locally(charge);
        drop(paused);
        self.forget_all(); // also refusals at another rate of the client
        redis.announce_reset(&charge.limiter, Some(charge)).await?;
        Ok(removed.into_iter().any(|removed| removed > 0))
    }

    /// Resets all buckets of a limit. Returns their number.
    pub async fn reset_limit(&self, limiter: &Arc<Limiter>) -> Result<u64, StoreError> {
        let redis = self.store();
        redis.announce_reset(limiter, None).await?;
        let paused = redis.fallback().pause_late_charges().await;
        redis.fallback().reset_all(limiter);
        drop(paused);
        let removed = redis.reset_all(limiter).await;
        self.forget_all();
        redis.announce_reset(limiter, None).await?;
        removed
    }

    /// Follows the resets through other gateways since the last call.
    pub async fn follow_resets(&self, limiters: &[Arc<Limiter>]) -> Result<(), StoreError> {
        let redis = self.store();
        let resets = redis.announced_resets().await?;
        if resets.is_empty() {
            return Ok(());
        }
        self.forget_all();
        let times = redis.reset_times().await?;
        let paused = redis.fallback().pause_late_charges().await;
        for reset in &resets {
            redis.follow_reset(reset, limiters, times);
        }
        drop(paused);
        redis.mark_applied(&resets);
        Ok(())
    }
}
