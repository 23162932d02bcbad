//! Makes trees of other values.

use crate::tree::{Entry, Node, Tree};

/// Returns a map with these entries.
pub(super) fn map(line: u32, entries: Vec<Entry>) -> Node {
    Node { line, value: Tree::Map(entries) }
}

/// Returns an entry of a map.
pub(super) fn entry(key: impl Into<String>, value: Node) -> Entry {
    Entry { key: key.into(), line: value.line, value }
}

/// Returns a text.
pub(super) fn text(line: u32, text: impl Into<String>) -> Node {
    Node { line, value: Tree::Scalar { text: text.into(), is_quoted: true } }
}
