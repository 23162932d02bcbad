//! Resets buckets for operators: afterwards they are as if they had never been used.
//!
//! A reset also removes what all gateways remember of the buckets: cached refusals, local buckets and local grants.

use std::sync::Arc;

use crate::{Backend, Store, StoreError, backend};
use tidegate_rules::charge::{Charge, Limiter};

impl Store {
    /// Resets the bucket of a charge. Returns `false` if the bucket does not exist.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The bucket may have been reset.
    #[doc(hidden)]
    pub async fn reset(&self, charge: &Charge) -> Result<bool, StoreError> {
        backend!(self, |memory| Ok(memory.reset(charge)), |redis| redis.reset(charge).await)
    }

    /// Resets all buckets of a limit. Returns their number. In Redis it reads the names of all keys step by step, so it
    /// takes a while in a large Redis, but blocks no other command.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. Some buckets may have been reset.
    #[doc(hidden)]
    pub async fn reset_limit(&self, limiter: &Arc<Limiter>) -> Result<u64, StoreError> {
        backend!(self, |memory| Ok(memory.reset_all(limiter).try_into().unwrap_or(u64::MAX)), |redis| {
            redis.reset_limit(limiter).await
        })
    }

    /// Follows the resets through other gateways since the last call: forgets what this gateway remembers of the
    /// buckets of these limits.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn follow_resets(&self, limiters: &[Arc<Limiter>]) -> Result<(), StoreError> {
        backend!(self, |_| Ok(()), |redis| redis.follow_resets(limiters).await)
    }
}
