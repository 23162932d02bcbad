//! Keys that all gateways on a Redis share, apart from buckets: the data of operators. All are in one hash slot.

use deadpool_redis::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use tokio::time::Instant;

use super::Redis;
use super::hash_slots::hash_slot_of_key;
use super::reset::STEP_TIMEOUT;
use crate::StoreError;
use tidegate_limit::clock::Timestamp;

impl Redis {
    /// Returns the key with this name. No limit has a key with this hash tag, since no route name contains `@`.
    pub fn shared_key(&self, name: &str) -> String {
        format!("{}:{name}", self.shared_tag)
    }

    /// Sends a command for shared keys. It may take longer than a decision.
    ///
    /// # Errors
    /// See [`StoreError`]. After a timeout, the command may have run.
    pub async fn send_shared<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let hash_slot = hash_slot_of_key(&self.shared_tag);
        let reply = self.call_owner(hash_slot, Instant::now() + STEP_TIMEOUT, command).await?;
        from_redis_value(reply).map_err(|_| StoreError::UnexpectedReply)
    }

    /// Returns the time of Redis's clock, and corrects the estimate to it.
    ///
    /// # Errors
    /// See [`send_shared`](Self::send_shared).
    pub async fn read_time(&self) -> Result<Timestamp, StoreError> {
        let (seconds, micros): (u64, u64) = self.send_shared(&cmd("TIME")).await?;
        let time = Timestamp::from_millis(seconds.saturating_mul(1_000) + micros / 1_000);
        self.record_time(time);
        Ok(time)
    }

    /// Returns the estimated time of Redis's clock.
    pub fn now(&self) -> Timestamp {
        self.context.estimated_now()
    }

    /// Corrects the estimate to a time that Redis has just returned.
    pub fn record_time(&self, store_time: Timestamp) {
        self.context.clock_offset.record(store_time);
    }
}
