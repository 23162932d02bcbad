//! The overrides that a gateway holds: as the store has returned them, or as another process has passed them on.
//!
//! If the store has lost entries that this gateway holds, the gateway restores them. The store decides for each id: the
//! newest revision stays, also if it is the record of a removed override.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Active, RateLimitLayer};
use crate::overrides::Override;
use tidegate_limit::clock::Timestamp;
use tidegate_store::{OverridesVersion, RestoredOverrides, Store, StoreError, StoredOverride, StoredOverrides};

/// The overrides in force, and the store that they are from.
#[derive(Debug)]
pub struct KnownOverrides {
    store: Store,
    /// `None` if the store has not returned these overrides.
    version: Option<OverridesVersion>,
    is_known: bool,
    /// As they are stored, with the records of removed overrides, by id.
    held: HashMap<String, StoredOverride>,
    /// In the order of their ids.
    overrides: Vec<Arc<Override>>,
}

// === impl KnownOverrides ===

impl KnownOverrides {
    /// Creates the empty set of a store that has not replied yet.
    pub(super) fn unknown(store: Store) -> Self {
        Self { store, version: None, is_known: false, held: HashMap::new(), overrides: Vec::new() }
    }

    /// Creates the set of these entries. Skips texts that another version of this program has written in another form.
    fn new(store: Store, version: Option<OverridesVersion>, entries: Vec<StoredOverride>) -> Self {
        let texts = entries.iter().filter_map(|entry| Some((&entry.id, entry.text.as_ref()?)));
        let count = texts.clone().count();
        let read =
            |(id, text): (&String, &String)| serde_json::from_str(text).ok().filter(|entry: &Override| entry.id == *id);
        let mut overrides: Vec<_> = texts.filter_map(read).map(Arc::new).collect();
        if overrides.len() < count {
            let unreadable = count - overrides.len();
            tracing::warn!(unreadable, "overrides in the store are not readable, ignoring them");
        }
        overrides.sort_by(|first, second| first.id.cmp(&second.id));
        let held = entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
        Self { store, version, is_known: true, held, overrides }
    }

    /// Returns the set with the entries that are newer. Returns `None` if no entry is newer.
    fn with_newer(&self, store: Store, entries: &[StoredOverride]) -> Option<Self> {
        let is_newer =
            |entry: &&StoredOverride| self.held.get(&entry.id).is_none_or(|held| held.revision < entry.revision);
        let newer: Vec<_> = entries.iter().filter(is_newer).collect();
        if newer.is_empty() {
            return None;
        }
        let mut held = self.held.clone();
        held.extend(newer.into_iter().map(|entry| (entry.id.clone(), entry.clone())));
        Some(Self::new(store, None, held.into_values().collect()))
    }

    /// Returns `true` if the store has replied since this gateway started, or another process has passed overrides on.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the entries as they are stored, with the records of removed overrides.
    pub fn held(&self) -> impl Iterator<Item = &StoredOverride> {
        self.held.values()
    }

    /// Returns all overrides, in the order of their ids. Some may have ended.
    pub(super) fn all(&self) -> &[Arc<Override>] {
        &self.overrides
    }

    /// Returns the overrides that are in force at this time, in the order of their ids.
    pub fn in_force(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Override>> {
        self.overrides.iter().filter(move |entry| entry.is_in_force(now))
    }

    /// Returns `true` if this version of this store has the overrides.
    fn is_current(&self, store: &Store, version: &OverridesVersion) -> bool {
        self.version.as_ref() == Some(version) && self.is_of(store)
    }

    fn is_of(&self, store: &Store) -> bool {
        self.store.has_same_buckets(store)
    }

    /// Returns `true` if a ban that is new or has changed since `before` disconnects clients.
    fn disconnects_more_than(&self, before: &Self) -> bool {
        let revision = |known: &Self, id: &str| known.held.get(id).map(|held| held.revision);
        let mut disconnecting = self.overrides.iter().filter(|entry| entry.disconnect);
        disconnecting.any(|entry| revision(self, &entry.id) != revision(before, &entry.id))
    }

    /// Returns the entries that the store has lost, or has only in an earlier revision.
    fn lost(&self, stored: &[StoredOverride], now: Timestamp) -> Vec<StoredOverride> {
        let revisions: HashMap<&str, u64> = stored.iter().map(|entry| (&*entry.id, entry.revision)).collect();
        let is_lost = |held: &&StoredOverride| {
            let is_older = |revision: &u64| *revision < held.revision;
            held.is_remembered(now) && revisions.get(&*held.id).is_none_or(is_older)
        };
        self.held.values().filter(is_lost).cloned().collect()
    }
}

// === impl RateLimitLayer ===

impl RateLimitLayer {
    #[doc(hidden)]
    pub fn overrides(&self) -> Arc<KnownOverrides> {
        Arc::clone(&self.state.active.load().last_read)
    }

    /// Applies overrides that another process has passed on, if they are newer than the known ones. The next
    /// [reading](Self::refresh_overrides) restores those that the store lacks. Returns the number of overrides in force.
    #[doc(hidden)]
    pub fn hold_overrides(&self, entries: &[StoredOverride]) -> usize {
        let store = self.store();
        let _replacing = self.state.replacing.lock();
        let active = self.state.active.load();
        if let Some(known) = active.last_read.with_newer(store.clone(), entries) {
            self.apply(&active, known);
        }
        self.overrides().in_force(store.now()).count()
    }

    /// Reads the overrides of the store, if they have changed, and applies them to all later requests of all workers.
    /// Before that, restores overrides that the store has lost.
    ///
    /// # Errors
    /// The store did not reply. The known overrides stay in force.
    #[doc(hidden)]
    pub async fn refresh_overrides(&self) -> Result<(), StoreError> {
        // An earlier reading must not replace a later one.
        let _reading = self.state.reading_overrides.lock().await;
        loop {
            let (store, known) = (self.store(), self.overrides());
            let version = store.overrides_version().await?;
            if known.is_current(&store, &version) {
                return if known.held.is_empty() { Ok(()) } else { store.refresh_clock().await };
            }
            let mut stored = store.read_overrides().await?;
            let lost = if known.is_of(&store) { known.lost(&stored.entries, store.now()) } else { Vec::new() };
            if !lost.is_empty() {
                log_restored(store.restore_overrides(&lost).await?);
                stored = store.read_overrides().await?;
            }
            let StoredOverrides { version, entries } = stored;
            let read = KnownOverrides::new(store, Some(version), entries);
            let _replacing = self.state.replacing.lock();
            let active = self.state.active.load();
            // Another process may have passed overrides on in the meantime.
            if Arc::ptr_eq(&active.last_read, &known) {
                self.apply(&active, read);
                return Ok(());
            }
        }
    }

    /// Replaces the overrides of all workers, and ends responses of clients that a new ban disconnects.
    fn apply(&self, active: &Active, known: KnownOverrides) {
        let disconnects = known.disconnects_more_than(&active.last_read);
        self.state.active.store(Arc::new(active.with_overrides(known)));
        if disconnects {
            self.state.disconnecting_bans.send_replace(());
        }
    }
}

fn log_restored(restored: RestoredOverrides) {
    let RestoredOverrides { overrides, removals } = restored;
    if restored != RestoredOverrides::default() {
        tracing::warn!(overrides, removals, "store has lost overrides: restored those that this gateway holds");
    }
}
