//! The audit list: the last changes that operators made through this gateway. Each is also logged.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock::wall_time;

/// The maximal number of entries; the oldest are dropped.
const MAX_ENTRIES: usize = 1_000;

/// The longest reason, in bytes. Reasons are kept in memory.
pub(super) const MAX_REASON: usize = 256;

/// The list, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit(Arc<Mutex<VecDeque<Entry>>>);

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
    /// The route and the limit.
    pub(super) target: String,
    /// The client: an address, or a hash as in the access log.
    pub(super) client: Option<String>,
    /// The reason that the operator gave.
    pub(super) reason: Option<String>,
}

impl Audit {
    /// Adds a change, and logs it.
    pub(super) fn record(&self, change: Change, outcome: Result<(), &str>) {
        let Change { operator, action, target, client, reason } = &change;
        let (client, reason) = (client.as_deref().unwrap_or("-"), reason.as_deref().unwrap_or("-"));
        let outcome = outcome.err().unwrap_or("done");
        tracing::info!(operator, action, target, client, reason, outcome, "operator change");
        let mut entries = self.0.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.pop_front();
        }
        entries.push_back(Entry { time: wall_time().to_rfc3339(), outcome: outcome.to_owned(), change });
    }

    /// Returns all entries, the newest first.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entries_are_dropped() {
        let audit = Audit::default();
        for number in 0..=MAX_ENTRIES {
            let (operator, target) = ("ann".to_owned(), number.to_string());
            let change = Change { operator, action: "reset_limit", target, client: None, reason: None };
            audit.record(change, if number % 2 == 0 { Err("no answer") } else { Ok(()) });
        }
        let entries = audit.entries();
        assert_eq!((entries.len(), entries[0].change.target.as_str()), (MAX_ENTRIES, "1000"));
        assert_eq!((entries[0].outcome.as_str(), entries[1].outcome.as_str()), ("no answer", "done"));
        assert_eq!(entries[MAX_ENTRIES - 1].change.target, "1");
    }
}
