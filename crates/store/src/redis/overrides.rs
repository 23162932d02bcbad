//! Keeps the overrides of limits in Redis, where all gateways on a store share them.

use std::collections::HashMap;

use deadpool_redis::redis::{Cmd, cmd};

use super::Redis;
use crate::StoreError;
use crate::operations::overrides::{
    MAX_OVERRIDES, OverridesVersion, PutOverride, RestoredOverrides, StoredOverride, StoredOverrides,
};
use tidegate_limit::clock::Timestamp;
use tidegate_limit::random::random;

const SCRIPT: &str = include_str!("../../lua/overrides.lua");

const VERSION_KEY: &str = "overrides:version";

/// The entries of one call. Lua passes at most about 8,000 arguments to a function.
const MAX_RESTORED: usize = 250;

/// A hash of Redis, by id.
type Texts = Vec<(String, String)>;

impl Redis {
    /// Returns the version of the overrides.
    pub async fn overrides_version(&self) -> Result<OverridesVersion, StoreError> {
        let version: Option<String> = self.send_shared(cmd("GET").arg(self.shared_key(VERSION_KEY))).await?;
        Ok(OverridesVersion(version.unwrap_or_default()))
    }

    /// Returns all overrides, including those that have ended since the last write.
    pub async fn read_overrides(&self) -> Result<StoredOverrides, StoreError> {
        let (now, version, texts, records): (u64, String, Texts, Texts) =
            self.send_shared(&self.overrides_script("read")).await?;
        self.record_time(Timestamp::from_millis(now));
        Ok(StoredOverrides { version: OverridesVersion(version), entries: entries(texts, records) })
    }

    /// Writes an override that ends at `until`, unless there is one with this id that it does not replace.
    pub async fn put_override(
        &self,
        id: &str,
        text: &str,
        until: Timestamp,
        replaces: bool,
    ) -> Result<PutOverride, StoreError> {
        let mut command = self.overrides_script("put");
        command.arg(id).arg(text).arg(until.as_millis()).arg(new_version()).arg(MAX_OVERRIDES);
        let reply: String = self.send_shared(command.arg(u8::from(replaces))).await?;
        match reply.as_str() {
            "done" => Ok(PutOverride::Done),
            "exists" => Ok(PutOverride::Exists),
            "full" => Ok(PutOverride::Full),
            _ => Err(StoreError::UnexpectedReply),
        }
    }

    /// Removes an override. Returns its text, if it existed.
    pub async fn remove_override(&self, id: &str) -> Result<Option<String>, StoreError> {
        self.send_shared(self.overrides_script("remove").arg(id).arg(new_version()).arg(MAX_OVERRIDES)).await
    }

    /// Writes entries that are newer than those with the same ids.
    pub async fn restore_overrides(&self, entries: &[StoredOverride]) -> Result<RestoredOverrides, StoreError> {
        let mut restored = RestoredOverrides::default();
        for entries in entries.chunks(MAX_RESTORED) {
            let mut command = self.overrides_script("restore");
            command.arg(new_version()).arg(MAX_OVERRIDES);
            for StoredOverride { id, revision, ends, remembered, text } in entries {
                command.arg(id).arg(revision).arg(ends).arg(remembered).arg(text.as_deref().unwrap_or_default());
            }
            let (overrides, removals): (usize, usize) = self.send_shared(&command).await?;
            restored.overrides += overrides;
            restored.removals += removals;
        }
        Ok(restored)
    }

    /// Returns a call of the script for this operation.
    fn overrides_script(&self, operation: &str) -> Cmd {
        let keys = ["overrides", "overrides:ends", "overrides:removed", "overrides:revisions", VERSION_KEY];
        let keys = keys.map(|name| self.shared_key(name));
        let mut command = cmd("EVAL");
        command.arg(SCRIPT).arg(keys.len()).arg(&keys).arg(operation);
        command
    }
}

fn new_version() -> String {
    format!("{:032x}", u128::from_le_bytes(random()))
}

/// Returns the entries of these texts and records, which are `REVISION END REMEMBERED`.
fn entries(texts: Texts, records: Texts) -> Vec<StoredOverride> {
    let mut texts: HashMap<String, String> = texts.into_iter().collect();
    let mut entries = Vec::with_capacity(records.len().max(texts.len()));
    for (id, record) in records {
        let mut numbers = record.split(' ').map(|number| number.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        let (revision, ends, remembered) = (next(), next(), next());
        let text = texts.remove(&id);
        entries.push(StoredOverride { id, revision, ends, remembered, text });
    }
    // Texts without a record are from another program.
    let unrecorded = texts.into_iter().map(|(id, text)| {
        let (revision, ends, remembered) = (0, 0, 0);
        StoredOverride { id, revision, ends, remembered, text: Some(text) }
    });
    entries.extend(unrecorded);
    entries
}
