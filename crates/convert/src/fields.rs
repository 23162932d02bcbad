//! Reads the entries of a map once each, so that the others can be reported.

use crate::report::Report;
use crate::sources::Text;
use crate::tree::{Entry, Node};

/// The longest value that a finding shows, in bytes.
const MAX_SHOWN: usize = 60;

/// The entries of a map, and those that have not been read.
#[derive(Debug)]
pub(crate) struct Fields<'n> {
    entries: &'n [Entry],
    is_read: Vec<bool>,
    spelling: Spelling,
}

/// How keys are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Letter by letter.
    Exact,
    /// Without the case of letters, and without `-` and `_`: `burstCapacity` is `burst-capacity`.
    Relaxed,
}

// === impl Fields ===

impl<'n> Fields<'n> {
    /// Reads a map. Other values have no entries.
    pub(crate) fn of(node: &'n Node, spelling: Spelling) -> Self {
        let entries = node.entries();
        Self { entries, is_read: vec![false; entries.len()], spelling }
    }

    /// Returns the entry with this key, unless its value is null. Of equal keys, the last one counts.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'n Entry> {
        let mut found = None;
        for (entry, is_read) in self.entries.iter().zip(&mut self.is_read) {
            if self.spelling.is_equal(&entry.key, key) {
                *is_read = true;
                found = Some(entry);
            }
        }
        found.filter(|entry| !entry.value.is_null())
    }

    /// Marks keys as read that have nothing to do with the rule file.
    pub(crate) fn skip(&mut self, keys: &[&str]) {
        for key in keys {
            self.take(key);
        }
    }

    /// Reports each entry that was not read as lost.
    pub(crate) fn report_rest(self, text: &Text, reason: &str, report: &mut Report) {
        for entry in self.rest() {
            report.lost(&text.place(entry.line), setting(entry), reason);
        }
    }

    /// Returns the entries that were not read.
    pub(crate) fn rest(self) -> impl Iterator<Item = &'n Entry> {
        let unread = self.entries.iter().zip(self.is_read).filter(|(_, is_read)| !is_read);
        unread.map(|(entry, _)| entry).filter(|entry| !entry.value.is_null())
    }
}

// === impl Spelling ===

impl Spelling {
    /// Returns `true` if two keys are equal.
    pub(crate) fn is_equal(self, left: &str, right: &str) -> bool {
        let letters = |text: &'_ str| {
            let bytes = text.bytes().filter(|byte| !matches!(byte, b'-' | b'_'));
            bytes.map(|byte| byte.to_ascii_lowercase()).collect::<Vec<_>>()
        };
        left == right || (self == Self::Relaxed && letters(left) == letters(right))
    }
}

/// Returns the key of an entry, with its value if that is short.
pub(crate) fn setting(entry: &Entry) -> String {
    let items = entry.value.items();
    let texts: Option<Vec<_>> = items.iter().map(Node::text).collect();
    let value = match entry.value.text() {
        Some(text) => Some(text.to_owned()),
        None if items.is_empty() => None,
        None => texts.map(|texts| format!("[{}]", texts.join(", "))),
    };
    match value {
        Some(value) if value.len() <= MAX_SHOWN => format!("{}: {value}", entry.key),
        _ => entry.key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn unread_entries_are_the_rest() {
        let documents = tree::read("a.yaml", "burst-capacity: 1\nx: [a, b]\nnone: ~\nx: [c]\n").unwrap();
        let mut fields = Fields::of(&documents[0], Spelling::Relaxed);
        assert_eq!(fields.take("burstCapacity").and_then(|entry| entry.value.number()), Some(1));
        assert!(fields.take("none").is_none());
        let rest: Vec<_> = fields.rest().map(setting).collect();
        assert_eq!(rest, ["x: [a, b]", "x: [c]"]);
        assert!(Fields::of(&documents[0], Spelling::Exact).take("burstCapacity").is_none());
    }
}
