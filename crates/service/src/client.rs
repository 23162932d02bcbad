//! The clients of buckets: the entries of a descriptor that a limit counts separately.

use tidegate_rules::charge::ClientId;
use tidegate_rules::client::append;

use crate::call::Entry;
use crate::tree::{Path, Spread};

/// The kind of the values of descriptors in encoded clients.
const KIND: u8 = b'D';

/// Returns the client of the limit at the end of a path. Returns `None` if all entries share one bucket.
pub(crate) fn client_of(path: &Path<'_>, entries: &[Entry<'_>]) -> Option<ClientId> {
    let mut encoded = Vec::new();
    for (node, entry) in path.iter().zip(entries) {
        match node.spread {
            Spread::Shared => {}
            Spread::ByValue => append(&mut encoded, KIND, entry.key, entry.value.as_bytes()),
            Spread::ByEntry => push_entry(&mut encoded, entry),
        }
    }
    (!encoded.is_empty()).then(|| ClientId::Value(encoded.into()))
}

/// Returns the client of a limit that the caller has set: all entries.
pub(crate) fn client_of_all(entries: &[Entry<'_>]) -> ClientId {
    let mut encoded = Vec::new();
    entries.iter().for_each(|entry| push_entry(&mut encoded, entry));
    ClientId::Value(encoded.into())
}

/// Appends an entry whose key is counted as well.
fn push_entry(encoded: &mut Vec<u8>, entry: &Entry<'_>) {
    [entry.key, entry.value].iter().for_each(|text| append(encoded, KIND, "", text.as_bytes()));
}
