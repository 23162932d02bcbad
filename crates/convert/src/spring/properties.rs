//! Finds properties: keys can be nested or joined with dots, and have several spellings.

use crate::fields::Spelling;
use crate::report::Place;
use crate::sources::Text;
use crate::tree::{Entry, Node};

/// The deepest nesting of placeholders.
const MAX_DEPTH: usize = 8;

/// A document of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties<'n> {
    pub(super) text: &'n Text,
    pub(super) root: &'n Node,
}

// === impl Properties ===

impl<'n> Properties<'n> {
    /// Returns the entry with a key such as `server.port`, if it has a value. Of several, the last one counts.
    pub(super) fn find(&self, key: &str) -> Option<&'n Entry> {
        find(self.root, key)
    }

    /// Returns an entry with this key, or below it.
    pub(super) fn find_below(&self, key: &str) -> Option<&'n Entry> {
        search(self.root, key, true)
    }

    /// Returns the place of an entry.
    pub(super) fn place(&self, entry: &Entry) -> Place {
        self.text.place(entry.line)
    }
}

/// Returns the entry with a key below a value.
pub(super) fn find<'n>(node: &'n Node, key: &str) -> Option<&'n Entry> {
    search(node, key, false)
}

/// Returns an entry whose key starts with the words of `key`. Set `is_start` to `false` for equal keys only.
fn search<'n>(node: &'n Node, key: &str, is_start: bool) -> Option<&'n Entry> {
    node.entries().iter().rev().find_map(|entry| {
        let mut rest = Some(key);
        // A name in a map can contain dots.
        for part in entry.key.split('.') {
            if is_start && rest.is_none() {
                break;
            }
            let (first, tail) = rest?.split_once('.').map_or((rest?, None), |(first, tail)| (first, Some(tail)));
            if !Spelling::Relaxed.is_equal(part, first) {
                return None;
            }
            rest = tail;
        }
        match rest {
            None => Some(entry).filter(|entry| !entry.value.is_null()),
            Some(rest) => search(&entry.value, rest, is_start),
        }
    })
}

/// Replaces placeholders such as `${PORT:8080}` by their defaults. Returns `true` if there was one.
pub(super) fn resolved(text: &str) -> (String, bool) {
    let found = text.contains("${");
    (if found { resolve(text, 0).unwrap_or_else(|| text.to_owned()) } else { text.to_owned() }, found)
}

/// Returns `None` if a placeholder has no default.
fn resolve(text: &str, depth: usize) -> Option<String> {
    let Some(start) = text.find("${") else { return Some(text.to_owned()) };
    if depth >= MAX_DEPTH {
        return None;
    }
    let (before, rest) = (&text[..start], &text[start + 2..]);
    let mut open = 1_usize;
    let end = rest.char_indices().find_map(|(position, letter)| {
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        (open == 0).then_some(position)
    })?;
    let (_, default) = rest[..end].split_once(':')?;
    let value = resolve(default.strip_prefix('-').unwrap_or(default), depth + 1)?;
    let tail = resolve(&rest[end + 1..], depth + 1)?;
    Some(format!("{before}{value}{tail}"))
}

/// Returns the key and the value of an entry, for findings.
pub(super) fn setting(entry: &Entry) -> String {
    crate::fields::setting(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn keys_are_found_in_all_spellings() {
        let text =
            "spring.cloud:\n  gateway:\n    defaultFilters: [a]\n    server.webflux.routes: [b]\nserver: { port: 1 }\n";
        let documents = tree::read("a.yaml", text).unwrap();
        let has = |key| find(&documents[0], key).is_some();
        assert!(has("spring.cloud.gateway.default-filters") && has("spring.cloud.gateway.server.webflux.routes"));
        assert!(has("server.port") && !has("server.ssl") && !has("spring.cloud.gateway.server.webflux"));
    }

    #[test]
    fn placeholders_have_their_defaults() {
        for (text, expected) in [
            ("http://${HOST:localhost}:${PORT:80}/", "http://localhost:80/"),
            ("${A:${B:x}}", "x"),
            ("${A}", "${A}"),
            ("${A", "${A"),
            ("plain", "plain"),
        ] {
            assert_eq!(resolved(text).0, expected);
        }
        assert_eq!(resolved(&"${A:".repeat(1_000)).0.len(), 4_000);
    }
}
