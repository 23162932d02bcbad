//! Values in the flow style of YAML, in one line.

use super::Tree;

/// Returns the text of a value.
pub(super) fn show(value: &Tree) -> String {
    match value {
        Tree::Scalar(text, false) if text.is_empty() => "null".to_owned(),
        Tree::Scalar(text, is_quoted) => scalar(text, *is_quoted),
        Tree::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Tree::Map(map) if map.entries.is_empty() => "{}".to_owned(),
        Tree::Map(map) => {
            let entries: Vec<_> =
                map.entries.iter().map(|(name, _, value)| format!("{}: {}", key(name), show(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

/// Returns the text of a key.
pub(super) fn key(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    scalar(name, name.is_empty() || !is_plain)
}

/// Returns a text. Plain texts of the block style may contain letters that end them in the flow style.
fn scalar(text: &str, is_quoted: bool) -> String {
    let ends_early = |letter: char| matches!(letter, ',' | '[' | ']' | '{' | '}' | '\n');
    match is_quoted || text.contains(ends_early) {
        true => serde_json::to_string(text).unwrap_or_default(), // YAML reads all texts of JSON
        false => text.to_owned(),
    }
}
