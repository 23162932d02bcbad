//! The audit list: the last changes that operators made. Each is also logged. It is in the store if gateways share one, and
//! each gateway holds all of it, to restore it after the store has lost its data.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;
use utoipa::ToSchema;

use super::gateway_name::GatewayName;
use tidegate_limit::clock::{Timestamp, wall_time};
use tidegate_store::{AuditMark, MAX_AUDIT_ENTRIES, Store, StoreError};

/// The longest reason, in bytes. Reasons are kept in memory.
pub(super) const MAX_REASON: usize = 256;

/// The list, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit(Arc<AuditState>);

#[derive(Debug, Default)]
struct AuditState {
    held: Mutex<Held>,
    /// Notified about new entries.
    changed: Notify,
}

/// The entries that this gateway holds: changes through this gateway, and those that the store has returned.
#[derive(Debug, Default)]
struct Held {
    /// By the time in milliseconds since 1970 and the JSON. The value is whether the store has the entry.
    entries: BTreeMap<(u64, String), bool>,
    /// Grows with each change of the entries.
    version: u64,
    /// The time of the last change through this gateway.
    last: Timestamp,
    /// The store that has the list, and the mark of the list when it was read last.
    store: Option<Store>,
    mark: Option<AuditMark>,
    /// How many entries the store has lost that are not restored yet.
    lost: usize,
}

/// A change.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Entry {
    /// When it was made (RFC 3339).
    time: String,
    #[serde(flatten)]
    change: Change,
    /// `done`, or the error.
    outcome: String,
}

/// The description of a change. Contains no client value: clients are addresses or hashes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Change {
    /// The name of the token.
    pub(super) operator: String,
    /// A fixed word.
    pub(super) action: &'static str,
    /// The route and the limit, or the upstream and its targets.
    pub(super) target: String,
    /// The client: an address, or a hash as in the access log.
    pub(super) client: Option<String>,
    /// The reason that the operator gave.
    pub(super) reason: Option<String>,
}

/// Returns the target of a change. Its gateway has a name if the change is one of several at all gateways.
pub(super) fn at_gateway(target: String, gateway: Option<&GatewayName>) -> String {
    match gateway {
        Some(gateway) => format!("{target} (gateway {})", gateway.as_str()),
        None => target,
    }
}

impl Audit {
    /// Adds a change, and logs it.
    pub(super) fn record(&self, change: Change, outcome: Result<(), &str>) {
        let Change { operator, action, target, client, reason } = &change;
        let (client, reason) = (client.as_deref().unwrap_or("-"), reason.as_deref().unwrap_or("-"));
        let outcome = outcome.err().unwrap_or("done");
        tracing::info!(operator, action, target, client, reason, outcome, "operator change");
        let outcome = outcome.to_owned();
        let mut held = self.0.held.lock();
        // Entries are in the order of their times, so each has its own millisecond.
        held.last = wall_time().max(held.last.plus_millis(1));
        let entry = Entry { time: held.last.to_rfc3339(), outcome, change };
        held.add(serde_json::to_string(&entry).unwrap_or_default(), false);
        self.0.changed.notify_one();
    }

    /// Waits for a change that the other gateways do not have.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Writes entries that the store lacks: new ones, and lost ones. Reads the entries of other gateways.
    pub(super) async fn share(&self, store: &Store) -> Result<(), StoreError> {
        let mark = store.audit_mark().await?;
        let Some(mark) = mark else { return Ok(()) };
        if !self.0.held.lock().is_read(store, &mark) {
            let stored = store.audit().await?.unwrap_or_default();
            let mut held = self.0.held.lock();
            held.merge(store, stored);
            held.mark = Some(mark);
        }
        let missing = self.0.held.lock().missing();
        if missing.is_empty() {
            return Ok(());
        }
        store.add_to_audit(&missing).await?;
        let mut held = self.0.held.lock();
        let lost = take(&mut held.lost);
        if lost > 0 {
            tracing::warn!(entries = lost, "store has lost audit entries: restored those that this gateway holds");
        }
        for (at, text) in missing {
            held.entries.entry((at, text)).and_modify(|is_shared| *is_shared = true);
        }
        held.mark = None; // other gateways may have added entries at the same time
        Ok(())
    }

    /// Returns the entries of all gateways, the newest first; those that this gateway holds if the store does not reply.
    /// `shared` is whether the entry is in the store.
    pub(super) async fn entries(&self, store: &Store) -> Vec<Value> {
        let stored = store.audit().await.ok().flatten();
        let is_read = stored.is_some();
        let mut held = self.0.held.lock();
        stored.into_iter().for_each(|stored| held.merge(store, stored));
        let show = |(text, is_shared): (&String, bool)| {
            let mut entry = serde_json::from_str::<Value>(text).ok()?;
            entry.as_object_mut()?.insert("shared".to_owned(), Value::Bool(is_read && is_shared));
            Some(entry)
        };
        held.entries.iter().rev().map(|((_, text), is_shared)| (text, *is_shared)).filter_map(show).collect()
    }

    /// Returns the entries as JSON, the oldest first.
    pub(super) fn held(&self) -> Vec<String> {
        self.0.held.lock().entries.keys().map(|(_, text)| text.clone()).collect()
    }

    /// Returns a number that grows with each change of the entries.
    pub(super) fn version(&self) -> u64 {
        self.0.held.lock().version
    }

    /// Adds entries that another process has passed on. They count as entries of this store.
    pub(super) fn hold(&self, store: &Store, entries: &[String]) {
        let mut held = self.0.held.lock();
        held.store = Some(store.clone());
        for text in entries {
            held.add(text.clone(), true);
        }
        held.mark = None;
        self.0.changed.notify_one();
    }
}

impl Held {
    fn is_read(&self, store: &Store, mark: &AuditMark) -> bool {
        self.is_of(store) && self.mark.as_ref() == Some(mark)
    }

    fn is_of(&self, store: &Store) -> bool {
        self.store.as_ref().is_some_and(|own| own.has_same_buckets(store))
    }

    /// Adds an entry. Drops the oldest entry if there are too many.
    fn add(&mut self, text: String, is_shared: bool) {
        let before = self.entries.insert((time_of(&text), text), is_shared);
        self.version += u64::from(before.is_none());
        if self.entries.len() > MAX_AUDIT_ENTRIES {
            self.entries.pop_first();
        }
    }

    /// Adds all entries of the store. Entries that the store had and has lost are no longer shared. Another store has its
    /// own list.
    fn merge(&mut self, store: &Store, stored: Vec<String>) {
        if !self.is_of(store) {
            self.entries.retain(|_, is_shared| !*is_shared);
            (self.store, self.lost) = (Some(store.clone()), 0);
        }
        let shared = self.entries.iter_mut().filter(|(_, is_shared)| **is_shared);
        let before: Vec<_> = shared.map(|(key, is_shared)| (key.clone(), *is_shared = false).0).collect();
        for text in stored {
            self.add(text, true);
        }
        self.lost += before.iter().filter(|key| self.entries.get(*key) == Some(&false)).count();
    }

    /// Returns the entries that the store lacks.
    fn missing(&self) -> Vec<(u64, String)> {
        self.entries.iter().filter(|(_, is_shared)| !**is_shared).map(|(key, _)| key.clone()).collect()
    }
}

/// Returns the time of an entry in milliseconds since 1970, or 0 if it has none.
fn time_of(text: &str) -> u64 {
    let time = serde_json::from_str::<Value>(text).ok().and_then(|entry| entry["time"].as_str()?.parse().ok());
    time.and_then(|time: jiff::Timestamp| u64::try_from(time.as_millisecond()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn oldest_entries_are_dropped() {
        let (audit, store) = (Audit::default(), Store::memory());
        for number in 0..=MAX_AUDIT_ENTRIES {
            let (operator, target) = ("ann".to_owned(), number.to_string());
            let change = Change { operator, action: "reset_limit", target, client: None, reason: None };
            audit.record(change, if number % 2 == 0 { Err("no answer") } else { Ok(()) });
        }
        audit.share(&store).await.expect("no other gateway");
        let entries = audit.entries(&store).await;
        assert_eq!((entries.len(), &entries[0]["target"]), (MAX_AUDIT_ENTRIES, &"1000".into()));
        assert_eq!((&entries[0]["outcome"], &entries[1]["outcome"]), (&"no answer".into(), &"done".into()));
        assert_eq!((&entries[999]["target"], &entries[999]["shared"]), (&"1".into(), &false.into()));
    }
}
