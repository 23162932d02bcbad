//! Marks limits as post-paid, for all gateways: a key for each limit.

use deadpool_redis::redis::cmd;

use super::Redis;
use super::script::keys::post_paid_key;
use crate::StoreError;
use crate::post_paid::{LASTS, PostPaidLimits};
use tidegate_rules::charge::Limiter;

impl Redis {
    /// Returns the limits that this process knows as post-paid.
    pub(crate) fn post_paid(&self) -> &PostPaidLimits {
        &self.post_paid
    }

    /// Marks a limit, or extends its mark.
    ///
    /// # Errors
    /// Redis did not reply. The mark may have been written.
    pub async fn write_post_paid_mark(&self, limiter: &Limiter) -> Result<(), StoreError> {
        let key = post_paid_key(limiter);
        self.query(&key, cmd("SET").arg(&key).arg(1).arg("EX").arg(LASTS.as_secs())).await
    }

    /// Returns `true` if the limit is marked.
    ///
    /// # Errors
    /// Redis did not reply.
    pub async fn has_post_paid_mark(&self, limiter: &Limiter) -> Result<bool, StoreError> {
        let key = post_paid_key(limiter);
        let mark: Option<u8> = self.query(&key, cmd("GET").arg(&key)).await?;
        Ok(mark.is_some())
    }
}
