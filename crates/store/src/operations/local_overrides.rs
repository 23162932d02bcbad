//! The overrides of a store in this process.

use std::collections::BTreeMap;

use super::overrides::{
    MAX_OVERRIDES, OverridesVersion, PutOverride, RestoredOverrides, StoredOverride, StoredOverrides,
};
use tidegate_limit::clock::Timestamp;

/// The overrides of a store in this process. It decides as `lua/overrides.lua` does. It loses no changes, so a change only has
/// to be newer than earlier changes of the same override.
#[derive(Debug, Default)]
pub(crate) struct LocalOverrides {
    version: u64,
    by_id: BTreeMap<String, StoredOverride>,
}

impl LocalOverrides {
    pub(super) fn version(&self) -> OverridesVersion {
        OverridesVersion(self.version.to_string())
    }

    pub(super) fn read(&self) -> StoredOverrides {
        StoredOverrides { version: self.version(), entries: self.by_id.values().cloned().collect() }
    }

    pub(super) fn put(
        &mut self,
        id: &str,
        text: &str,
        until: Timestamp,
        replaces: bool,
        now: Timestamp,
    ) -> PutOverride {
        self.forget_ended(now);
        let before = self.by_id.get(id);
        match before.is_some_and(|entry| entry.text.is_some()) {
            true if !replaces => return PutOverride::Exists,
            false if self.count_live() >= MAX_OVERRIDES => return PutOverride::Full,
            _ => {}
        }
        let ends = until.as_millis();
        let entry = StoredOverride {
            id: id.to_owned(),
            revision: next_revision(before, now),
            ends,
            remembered: before.map_or(ends, |before| before.remembered.max(ends)),
            text: Some(text.to_owned()),
        };
        self.by_id.insert(id.to_owned(), entry);
        self.version += 1;
        PutOverride::Done
    }

    pub(super) fn remove(&mut self, id: &str, now: Timestamp) -> Option<String> {
        self.forget_ended(now);
        let entry = self.by_id.get_mut(id)?;
        let text = entry.text.take()?;
        entry.revision = next_revision(Some(entry), now);
        self.bound_removed();
        self.version += 1;
        Some(text)
    }

    pub(super) fn restore(&mut self, entries: &[StoredOverride], now: Timestamp) -> RestoredOverrides {
        self.forget_ended(now);
        let mut restored = RestoredOverrides::default();
        for entry in entries.iter().filter(|entry| entry.is_remembered(now)) {
            let before = self.by_id.get(&entry.id);
            if before.is_some_and(|before| before.revision >= entry.revision) {
                continue;
            }
            let is_live = entry.is_live(now);
            let replaces_live = before.is_some_and(|before| before.text.is_some());
            if is_live && !replaces_live && self.count_live() >= MAX_OVERRIDES {
                continue;
            }
            let text = entry.text.clone().filter(|_| is_live);
            let remembered = before.map_or(entry.remembered, |before| before.remembered.max(entry.remembered));
            self.by_id.insert(entry.id.clone(), StoredOverride { text, remembered, ..entry.clone() });
            *(if is_live { &mut restored.overrides } else { &mut restored.removals }) += 1;
        }
        self.bound_removed();
        self.version += u64::from(restored != RestoredOverrides::default());
        restored
    }

    fn count_live(&self) -> usize {
        self.by_id.values().filter(|entry| entry.text.is_some()).count()
    }

    /// Forgets the records that end first, if there are too many.
    fn bound_removed(&mut self) {
        let removed = self.by_id.values().filter(|entry| entry.text.is_none());
        let mut ends: Vec<_> = removed.map(|entry| (entry.remembered, entry.id.clone())).collect();
        let excess = ends.len().saturating_sub(MAX_OVERRIDES);
        if excess > 0 {
            ends.sort_unstable();
            for (_, id) in &ends[..excess] {
                self.by_id.remove(id);
            }
        }
    }

    fn forget_ended(&mut self, now: Timestamp) {
        self.by_id.retain(|_, entry| entry.is_remembered(now));
        for entry in self.by_id.values_mut().filter(|entry| !entry.is_live(now)) {
            entry.text = None;
        }
    }
}

fn next_revision(before: Option<&StoredOverride>, now: Timestamp) -> u64 {
    before.map_or(0, |before| before.revision.saturating_add(1)).max(now.as_millis())
}
