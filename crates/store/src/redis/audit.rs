//! The audit list of all gateways, in Redis: a sorted set of texts by their times. A write can be repeated.

use deadpool_redis::redis::cmd;

use crate::{Backend, Store, StoreError};

/// The number of entries of the audit list and the newest one. It differs after a change, and after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditMark {
    count: usize,
    newest: Option<String>,
}

/// The maximal number of entries; the oldest are removed.
pub const MAX_AUDIT_ENTRIES: usize = 1_000;

impl Store {
    /// Adds entries with their times in milliseconds. Does nothing if no other gateway shares the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The entries may have been added.
    #[doc(hidden)]
    pub async fn add_to_audit(&self, entries: &[(u64, String)]) -> Result<(), StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(()) };
        let (redis, key) = (redis.store(), redis.store().shared_key("audit"));
        redis.send_shared::<()>(cmd("ZADD").arg(&key).arg(entries)).await?;
        let newest = -i64::try_from(MAX_AUDIT_ENTRIES).unwrap_or(i64::MAX);
        redis.send_shared(cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(newest - 1)).await
    }

    /// Returns all entries, the newest first; `None` if no other gateway shares the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn audit(&self) -> Result<Option<Vec<String>>, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(None) };
        let redis = redis.store();
        redis.send_shared(cmd("ZREVRANGE").arg(redis.shared_key("audit")).arg(0).arg(-1)).await.map(Some)
    }

    /// Returns the mark of the list; `None` if no other gateway shares the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn audit_mark(&self) -> Result<Option<AuditMark>, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(None) };
        let (redis, key) = (redis.store(), redis.store().shared_key("audit"));
        let newest: Vec<String> = redis.send_shared(cmd("ZREVRANGE").arg(&key).arg(0).arg(0)).await?;
        let count = redis.send_shared(cmd("ZCARD").arg(&key)).await?;
        Ok(Some(AuditMark { count, newest: newest.into_iter().next() }))
    }
}
