//! The audit list: the last changes that operators made. Each is also logged. It is in the store if gateways share one.

use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;
use utoipa::ToSchema;

use tidegate_limit::clock::wall_time;
use tidegate_store::{MAX_AUDIT_ENTRIES, Store, StoreError};

/// The longest reason, in bytes. Reasons are kept in memory.
pub(super) const MAX_REASON: usize = 256;

/// The list, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit(Arc<AuditState>);

#[derive(Debug, Default)]
struct AuditState {
    /// The changes through this gateway.
    entries: Mutex<VecDeque<Kept>>,
    /// Notified about new entries.
    changed: Notify,
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

/// An entry as it is kept and shared.
#[derive(Clone, Debug)]
struct Kept {
    /// Milliseconds since 1970.
    at: u64,
    /// JSON.
    text: String,
    /// Whether the other gateways have it.
    is_shared: bool,
}

impl Audit {
    /// Adds a change, and logs it.
    pub(super) fn record(&self, change: Change, outcome: Result<(), &str>) {
        let Change { operator, action, target, client, reason } = &change;
        let (client, reason) = (client.as_deref().unwrap_or("-"), reason.as_deref().unwrap_or("-"));
        let outcome = outcome.err().unwrap_or("done");
        tracing::info!(operator, action, target, client, reason, outcome, "operator change");
        let now = wall_time();
        let entry = Entry { time: now.to_rfc3339(), outcome: outcome.to_owned(), change };
        let text = serde_json::to_string(&entry).unwrap_or_default();
        let mut entries = self.0.entries.lock();
        if entries.len() >= MAX_AUDIT_ENTRIES {
            entries.pop_front();
        }
        entries.push_back(Kept { at: now.as_millis(), text, is_shared: false });
        self.0.changed.notify_one();
    }

    /// Waits for a change that the other gateways do not have.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Writes the entries to the store that the other gateways do not have.
    pub(super) async fn share(&self, store: &Store) -> Result<(), StoreError> {
        let kept = self.0.entries.lock().clone();
        let entries: Vec<(u64, String)> =
            kept.into_iter().filter(|entry| !entry.is_shared).map(|entry| (entry.at, entry.text)).collect();
        if entries.is_empty() || !store.is_redis() {
            return Ok(());
        }
        store.add_to_audit(&entries).await?;
        let texts: HashSet<&str> = entries.iter().map(|(_, text)| text.as_str()).collect();
        for entry in self.0.entries.lock().iter_mut().filter(|entry| texts.contains(entry.text.as_str())) {
            entry.is_shared = true;
        }
        Ok(())
    }

    /// Returns the entries of all gateways, the newest first, or of this gateway if the store does not reply. `shared` is
    /// whether the entry is in the store.
    pub(super) async fn entries(&self, store: &Store) -> Vec<Value> {
        let own: Vec<Kept> = self.0.entries.lock().iter().rev().cloned().collect();
        let shared = store.audit().await.ok().flatten();
        let is_known = shared.is_some();
        let shared = shared.unwrap_or_default();
        let is_own = |entry: &Kept| !is_known || !(entry.is_shared || shared.contains(&entry.text));
        let own: Vec<String> = own.into_iter().filter(is_own).map(|entry| entry.text).collect();
        let show = |is_shared| {
            move |text: String| {
                let mut entry = serde_json::from_str::<Value>(&text).ok()?;
                entry.as_object_mut()?.insert("shared".to_owned(), Value::Bool(is_shared));
                Some(entry)
            }
        };
        let mut entries: Vec<Value> = own.into_iter().filter_map(show(false)).collect();
        entries.extend(shared.into_iter().filter_map(show(true)));
        let time = |entry: &Value| entry["time"].as_str().map(str::to_owned);
        entries.sort_by_key(|entry| Reverse(time(entry)));
        entries.truncate(MAX_AUDIT_ENTRIES);
        entries
    }
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
