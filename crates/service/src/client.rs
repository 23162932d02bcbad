//! The clients of buckets: the entries of a descriptor that a limit counts separately.

use tidegate_rules::charge::ClientId;

use crate::call::Entry;
use crate::tree::{Path, Spread};

/// Returns the client of the limit at the end of a path. Returns `None` if all entries share one bucket.
pub(crate) fn client_of(path: &Path<'_>, entries: &[Entry<'_>]) -> Option<ClientId> {
    let mut encoded = Vec::new();
    for (node, entry) in path.iter().zip(entries) {
        match node.spread {
            Spread::Shared => {}
            Spread::ByValue => push(&mut encoded, entry.value),
            Spread::ByEntry => [entry.key, entry.value].iter().for_each(|text| push(&mut encoded, text)),
        }
    }
    (!encoded.is_empty()).then(|| ClientId::Value(encoded.into()))
}

/// Returns the client of a limit that the caller has set: all entries.
pub(crate) fn client_of_all(entries: &[Entry<'_>]) -> ClientId {
    let mut encoded = Vec::new();
    entries.iter().flat_map(|entry| [entry.key, entry.value]).for_each(|text| push(&mut encoded, text));
    ClientId::Value(encoded.into())
}

/// Appends a text with its length, so that different entries never have equal encodings.
fn push(encoded: &mut Vec<u8>, text: &str) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    encoded.extend_from_slice(&length.to_be_bytes());
    encoded.extend_from_slice(text.as_bytes());
}
