//! Stores the overrides of limits: texts with an id and an end, which all gateways on a store share. They are in Redis if the
//! buckets are, otherwise in this process.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{Backend, Store, StoreError, backend};
use tidegate_limit::clock::{Timestamp, wall_time};

/// The maximal number of overrides. Each gateway keeps all of them in memory.
pub const MAX_OVERRIDES: usize = 10_000;

/// A text that changes whenever the overrides change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridesVersion(pub(crate) String);

/// All overrides of a store.
#[derive(Debug)]
pub struct StoredOverrides {
    /// The version of the list.
    pub version: OverridesVersion,
    /// By id.
    pub texts: Vec<(String, String)>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOverride {
    /// It was written.
    Done,
    /// An override with this id exists.
    Exists,
    /// There are [`MAX_OVERRIDES`] others.
    Full,
}

/// The overrides of a store in this process.
#[derive(Debug, Default)]
pub(crate) struct LocalOverrides {
    version: u64,
    by_id: BTreeMap<String, (Timestamp, String)>,
}

// === impl Store ===

impl Store {
    /// Returns the version of the overrides.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn overrides_version(&self) -> Result<OverridesVersion, StoreError> {
        backend!(self, |memory| Ok(memory.overrides().0.version()), |redis| redis.store().overrides_version().await)
    }

    /// Returns all overrides, including those that have ended since the last write.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn read_overrides(&self) -> Result<StoredOverrides, StoreError> {
        backend!(self, |memory| Ok(memory.overrides().0.read()), |redis| redis.store().read_overrides().await)
    }

    /// Writes an override that ends at `until`, unless there is one with this id that it does not replace.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The override may have been written.
    #[doc(hidden)]
    pub async fn put_override(
        &self,
        id: &str,
        text: &str,
        until: Timestamp,
        replaces: bool,
    ) -> Result<PutOverride, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut overrides, now) = memory.overrides();
                Ok(overrides.put(id, text, until, replaces, now))
            },
            |redis| redis.store().put_override(id, text, until, replaces).await
        )
    }

    /// Removes an override. Returns its text, if it existed.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The override may have been removed.
    #[doc(hidden)]
    pub async fn remove_override(&self, id: &str) -> Result<Option<String>, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut overrides, now) = memory.overrides();
                Ok(overrides.remove(id, now))
            },
            |redis| redis.store().remove_override(id).await
        )
    }

    /// Corrects the estimate of the time of Redis's clock, which may have been set.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn refresh_clock(&self) -> Result<(), StoreError> {
        backend!(self, |_| {}, |redis| {
            redis.store().read_time().await?;
        });
        Ok(())
    }

    /// Returns the deadline of a decision that starts now; `None` if the store is in this process.
    #[doc(hidden)]
    pub fn deadline(&self) -> Option<Instant> {
        backend!(self, |_| None, |redis| Some(redis.deadline()))
    }

    /// Returns how far the store's clock is ahead of this host's wall clock, in milliseconds, as last measured. `None` if the
    /// store is in this process.
    #[doc(hidden)]
    pub fn clock_offset(&self) -> Option<i64> {
        backend!(self, |_| None, |redis| {
            let (store, own) = (redis.store().now().as_millis(), wall_time().as_millis());
            Some(store.cast_signed().saturating_sub(own.cast_signed()))
        })
    }

    /// Returns the time of the store's clock; for Redis, an estimate.
    #[doc(hidden)]
    pub fn now(&self) -> Timestamp {
        backend!(self, |memory| memory.now(), |redis| redis.store().now())
    }
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
