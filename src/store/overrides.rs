//! Stores the overrides of limits: texts with an id and an end, which all gateways on a store share. They are in Redis if the
//! buckets are, otherwise in this process.

use std::collections::BTreeMap;

use deadpool_redis::redis::{Cmd, cmd};
use tokio::time::Instant;

use super::negative_cache::Remote as _;
use super::{Backend, Redis, Store, StoreError};
use crate::clock::Timestamp;
use crate::random::random;

/// The maximal number of overrides. Each gateway keeps all of them in memory.
pub(crate) const MAX_OVERRIDES: usize = 10_000;

/// A text that changes whenever the overrides change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverridesVersion(String);

/// All overrides of a store.
#[derive(Debug)]
pub(crate) struct StoredOverrides {
    pub(crate) version: OverridesVersion,
    /// By id.
    pub(crate) texts: Vec<(String, String)>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutOverride {
    /// It was written.
    Done,
    /// An override with this id exists.
    Exists,
    /// There are [`MAX_OVERRIDES`] others.
    Full,
}

/// The overrides of a store in this process.
#[derive(Debug, Default)]
pub(super) struct LocalOverrides {
    version: u64,
    by_id: BTreeMap<String, (Timestamp, String)>,
}

const SCRIPT: &str = include_str!("../../lua/overrides.lua");

// === impl Store ===

impl Store {
    /// Returns the version of the overrides.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    pub(crate) async fn overrides_version(&self) -> Result<OverridesVersion, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => Ok(memory.overrides().0.version()),
            Backend::Redis(redis) => {
                let redis = redis.store();
                let version: Option<String> = redis.send_shared(cmd("GET").arg(redis.shared_key(VERSION_KEY))).await?;
                Ok(OverridesVersion(version.unwrap_or_default()))
            }
        }
    }

    /// Returns all overrides, including those that have ended since the last write.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    pub(crate) async fn read_overrides(&self) -> Result<StoredOverrides, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => Ok(memory.overrides().0.read()),
            Backend::Redis(redis) => {
                let redis = redis.store();
                let (now, version, texts): (u64, String, Vec<(String, String)>) =
                    redis.send_shared(&script(redis, "read")).await?;
                redis.record_time(Timestamp::from_millis(now));
                Ok(StoredOverrides { version: OverridesVersion(version), texts })
            }
        }
    }

    /// Writes an override that ends at `until`, unless there is one with this id that it does not replace.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The override may have been written.
    pub(crate) async fn put_override(
        &self,
        id: &str,
        text: &str,
        until: Timestamp,
        replaces: bool,
    ) -> Result<PutOverride, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => {
                let (mut overrides, now) = memory.overrides();
                Ok(overrides.put(id, text, until, replaces, now))
            }
            Backend::Redis(redis) => {
                let mut command = script(redis.store(), "put");
                command.arg(id).arg(text).arg(until.as_millis()).arg(new_version()).arg(MAX_OVERRIDES);
                let said: String = redis.store().send_shared(command.arg(u8::from(replaces))).await?;
                match said.as_str() {
                    "done" => Ok(PutOverride::Done),
                    "exists" => Ok(PutOverride::Exists),
                    "full" => Ok(PutOverride::Full),
                    _ => Err(StoreError::UnexpectedReply),
                }
            }
        }
    }

    /// Removes an override. Returns its text, if it existed.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The override may have been removed.
    pub(crate) async fn remove_override(&self, id: &str) -> Result<Option<String>, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => {
                let (mut overrides, now) = memory.overrides();
                Ok(overrides.remove(id, now))
            }
            Backend::Redis(redis) => {
                let mut command = script(redis.store(), "remove");
                redis.store().send_shared(command.arg(id).arg(new_version())).await
            }
        }
    }

    /// Corrects the estimate of the time of Redis's clock, which may have been set.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    pub(crate) async fn refresh_clock(&self) -> Result<(), StoreError> {
        if let Backend::Redis(redis) = &self.0 {
            redis.store().read_time().await?;
        }
        Ok(())
    }

    /// Returns the deadline of a decision that starts now; `None` if the store is in this process.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.0 {
            Backend::Memory(_) => None,
            Backend::Redis(redis) => Some(redis.store().deadline()),
        }
    }

    /// Returns the time of the store's clock; for Redis, an estimate.
    pub(crate) fn now(&self) -> Timestamp {
        match &self.0 {
            Backend::Memory(memory) => memory.now(),
            Backend::Redis(redis) => redis.store().now(),
        }
    }
}

const VERSION_KEY: &str = "overrides:version";

/// Returns a call of the script for this operation.
fn script(redis: &Redis, operation: &str) -> Cmd {
    let keys = ["overrides", "overrides:ends", VERSION_KEY].map(|name| redis.shared_key(name));
    let mut command = cmd("EVAL");
    command.arg(SCRIPT).arg(keys.len()).arg(&keys).arg(operation);
    command
}

fn new_version() -> String {
    format!("{:032x}", u128::from_le_bytes(random()))
}

// === impl LocalOverrides ===

impl LocalOverrides {
    fn version(&self) -> OverridesVersion {
        OverridesVersion(self.version.to_string())
    }

    fn read(&self) -> StoredOverrides {
        let texts = self.by_id.iter().map(|(id, (_, text))| (id.clone(), text.clone())).collect();
        StoredOverrides { version: self.version(), texts }
    }

    fn put(&mut self, id: &str, text: &str, until: Timestamp, replaces: bool, now: Timestamp) -> PutOverride {
        self.remove_ended(now);
        match self.by_id.contains_key(id) {
            true if !replaces => return PutOverride::Exists,
            false if self.by_id.len() >= MAX_OVERRIDES => return PutOverride::Full,
            _ => {}
        }
        self.by_id.insert(id.to_owned(), (until, text.to_owned()));
        self.version += 1;
        PutOverride::Done
    }

    fn remove(&mut self, id: &str, now: Timestamp) -> Option<String> {
        self.remove_ended(now);
        let (_, text) = self.by_id.remove(id)?;
        self.version += 1;
        Some(text)
    }

    fn remove_ended(&mut self, now: Timestamp) {
        self.by_id.retain(|_, (until, _)| *until > now);
    }
}
