//! Stores the overrides of limits: texts with an id and an end, which all gateways on a store share. They are in Redis if the
//! buckets are, otherwise in this process.
//!
//! Gateways restore overrides after the store has lost its data. Each change of an override has a revision, and the store
//! remembers the revision of a removed or shortened override as long as an earlier revision could be in force. So the
//! newest revision wins, whichever gateway restores first.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{Backend, Store, StoreError, backend};
use tidegate_limit::clock::{Timestamp, wall_time};

/// The maximal number of overrides, and of records of removed overrides. Each gateway keeps all of them in memory.
pub const MAX_OVERRIDES: usize = 10_000;

/// A text that changes whenever the overrides change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridesVersion(pub(crate) String);

/// An override in the store, or the record of a removed one. All times are milliseconds since 1970, by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOverride {
    /// The id of the override.
    pub id: String,
    /// Grows with each change of the override: the time of the change, at least 1 more than before.
    pub revision: u64,
    /// The end of the override.
    pub ends: u64,
    /// The latest end of all its revisions. Until then, the store knows that earlier revisions are not in force.
    pub remembered: u64,
    /// `None` if the override was removed.
    pub text: Option<String>,
}

/// All overrides of a store.
#[derive(Debug)]
pub struct StoredOverrides {
    /// The version of the list.
    pub version: OverridesVersion,
    /// In any order, each id once.
    pub entries: Vec<StoredOverride>,
}

/// The numbers of entries that a restore has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredOverrides {
    /// Overrides.
    pub overrides: usize,
    /// Records of removed overrides.
    pub removals: usize,
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

// === impl StoredOverride ===

impl StoredOverride {
    /// Returns `true` if the override is in force at this time.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.text.is_some() && now.as_millis() < self.ends
    }

    /// Returns `true` if the entry is of use at this time: its override is in force, or an earlier revision could be.
    pub fn is_remembered(&self, now: Timestamp) -> bool {
        now.as_millis() < self.remembered
    }
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

    /// Writes entries that the store has lost: those that are newer than its own entries with the same ids. Ignores
    /// entries that need not be remembered any more.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. Some entries may have been written.
    #[doc(hidden)]
    pub async fn restore_overrides(&self, entries: &[StoredOverride]) -> Result<RestoredOverrides, StoreError> {
        backend!(
            self,
            |memory| {
                let (mut overrides, now) = memory.overrides();
                Ok(overrides.restore(entries, now))
            },
            |redis| redis.store().restore_overrides(entries).await
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
