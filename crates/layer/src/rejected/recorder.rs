//! Counts the rejections of a worker until the control thread collects them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use datasketches::frequencies::FrequentItemsSketch;
use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use super::key::{Client, Key, LimitId};
use tidegate_rules::charge::ClientId;
use tidegate_rules::client::shown_value;
use tidegate_store::Store;

/// The number of slots of a sketch. It is exact for 1,536 pairs of limit and client. Otherwise it miscounts a pair by at
/// most 0.2 % of all rejections.
pub(super) const SLOTS: usize = 2_048;

/// The maximum number of values that a worker keeps until they are collected.
const MAX_VALUES: usize = 256;

/// The longest part of a value that is kept, in bytes.
const MAX_VALUE: usize = 128;

/// Creates an empty sketch. It grows from 8 slots.
#[expect(clippy::expect_used, reason = "a number of slots that is a power of two is valid")]
pub(super) fn new_counts() -> Counts {
    FrequentItemsSketch::new(SLOTS).expect("a power of two")
}

/// The rejections of one worker. Only the control thread uses the lock too, for less than a microsecond.
#[derive(Debug)]
pub(super) struct Recorder(Mutex<Batch>);

/// Rejections that were not collected yet.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) counts: Counts,
    /// The values of hashed clients; empty unless operators may see values.
    pub(super) values: HashMap<Key, Box<str>>,
}

/// The number of rejections of each client.
pub(super) type Counts = FrequentItemsSketch<Key>;

impl Recorder {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Batch::new()))
    }

    /// Counts a rejection.
    pub(super) fn record(&self, limit: LimitId, client: Option<&ClientId>, store: &Store, context: Context<'_>) {
        let key = Key::new(limit, Client::new(client, store), context.hasher);
        let mut batch = self.0.lock();
        batch.counts.update(key);
        if context.keeps_values
            && let (Client::Hash(_), Some(ClientId::Value(value))) = (key.client, client)
        {
            batch.keep(key, value);
        }
    }

    /// Takes the rejections so far; `None` without any.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut batch = self.0.lock();
        (!batch.counts.is_empty()).then(|| std::mem::replace(&mut *batch, Batch::new()))
    }
}

/// The settings that recorders share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'r> {
    pub(super) hasher: &'r DefaultHashBuilder,
    pub(super) keeps_values: bool,
}

impl Batch {
    fn new() -> Self {
        Self { counts: new_counts(), values: HashMap::new() }
    }

    fn keep(&mut self, key: Key, value: &[u8]) {
        let is_full = self.values.len() >= MAX_VALUES;
        if let Entry::Vacant(entry) = self.values.entry(key)
            && !is_full
        {
            entry.insert(shown_value(value, MAX_VALUE).into());
        }
    }
}
