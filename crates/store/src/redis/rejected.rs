//! Shares the clients that gateways reject most, in Redis: a text for each gateway and minute.

use deadpool_redis::redis::{Cmd, cmd};

use super::Redis;
use crate::{Backend, Store, StoreError};

const SCRIPT: &str = include_str!("../../lua/rejected.lua");

/// The time until Redis drops the texts after the last write.
const TIME_TO_LIVE_MILLIS: u32 = 17 * 60 * 1_000;

/// The rejections of one gateway in a minute, as other gateways read them.
#[derive(Clone, Debug)]
pub struct RejectedMinute {
    /// The number of the minute since 1970.
    pub minute: u64,
    /// The text that a gateway wrote for this minute.
    pub text: String,
}

impl Store {
    /// Writes the rejections of a gateway in a minute. Removes its entries before the minute `first` and after
    /// the written minute, and the entries of all gateways that are too old by Redis's clock.
    /// Does nothing if no other gateway shares the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn share_rejections(
        &self,
        gateway: &str,
        rejections: &RejectedMinute,
        first: u64,
    ) -> Result<(), StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(()) };
        let RejectedMinute { minute, text } = rejections;
        let mut command = script(redis.store(), "put");
        command.arg(format!("{gateway}:{minute}")).arg(minute).arg(text).arg(first).arg(TIME_TO_LIVE_MILLIS);
        redis.store().send_shared(&command).await
    }

    /// Returns the rejections of all gateways from the minute `first` on; `None` if no other gateway shares the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn shared_rejections(&self, first: u64) -> Result<Option<Vec<String>>, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(None) };
        redis.store().send_shared(script(redis.store(), "read").arg(first)).await.map(Some)
    }
}

/// Returns a call of the script for this operation.
fn script(redis: &Redis, operation: &str) -> Cmd {
    let keys = ["rejected", "rejected:minutes"].map(|name| redis.shared_key(name));
    let mut command = cmd("EVAL");
    command.arg(SCRIPT).arg(keys.len()).arg(&keys).arg(operation);
    command
}
