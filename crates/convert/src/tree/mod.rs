//! YAML and JSON as trees with the line of each value.
//!
//! Time and memory are bounded: the tree is built without recursion, its depth is limited, and an alias counts all values
//! and bytes that it repeats.

pub(crate) mod branch;
mod builder;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use saphyr_parser::Parser;

use self::builder::Builder;
use crate::error::ConvertError;
use crate::report::Place;

/// The most commas and brackets of a text. The parser keeps all of them until the end of the first list or map in brackets.
const MAX_MARKS: usize = 500_000;

/// A value with its line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The line, from 1. For an alias, the line of the value that it repeats.
    pub(crate) line: u32,
    pub(crate) value: Tree,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    /// A text, number or flag. Plain scalars are not quoted.
    Scalar {
        text: String,
        is_quoted: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The line of the key.
    pub(crate) line: u32,
    pub(crate) value: Node,
}

/// Parses the documents of a YAML or JSON text. Empty documents are left out. Tags are ignored; `<<` merges maps.
///
/// # Errors
/// Fails if the text is not YAML, or exceeds a bound.
pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Node>, ConvertError> {
    let file: Arc<str> = file.into();
    if memchr::memchr3_iter(b',', b'[', b'{', text.as_bytes()).count() > MAX_MARKS {
        let message = format!("more than {MAX_MARKS} commas and brackets");
        return Err(ConvertError::Syntax { place: Place { file, line: 1 }, message });
    }
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (line, error) = match event {
            Ok((event, span)) => (span.start.line(), builder.event(event, span.start.line()).err()),
            Err(error) => (error.marker().line(), Some(format!("not YAML: {}", error.info()))),
        };
        if let Some(message) = error {
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            return Err(ConvertError::Syntax { place: Place { file, line }, message });
        }
    }
    Ok(builder.documents)
}

// === impl Node ===

impl Node {
    /// Returns the value of a key, if this is a map that has it. Of equal keys, the last one counts.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the value at a path of keys.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Returns the entries of a map. Empty for other values.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Tree::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list. Empty for other values.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Tree::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the items of a list, or this value as the only item. Empty for `null`.
    pub(crate) fn one_or_more(&self) -> &[Node] {
        match &self.value {
            Tree::List(items) => items,
            _ if self.is_null() => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// Returns the text of a scalar, which can be a number or a flag. `None` for `null`, lists and maps.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Tree::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// Returns a whole number, also in quotes. `None` for negative ones.
    pub(crate) fn number(&self) -> Option<u64> {
        let text = self.text()?;
        text.parse().ok().or_else(|| {
            let float: f64 = text.parse().ok()?;
            whole(float)
        })
    }

    /// Returns a finite number, also in quotes.
    pub(crate) fn float(&self) -> Option<f64> {
        self.text()?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Returns a flag: `true` or `false` in any case, also in quotes.
    pub(crate) fn flag(&self) -> Option<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Returns `true` for `null`, `~` and nothing at all, without quotes.
    pub(crate) fn is_null(&self) -> bool {
        let null = |text: &str| matches!(text, "" | "~" | "null" | "Null" | "NULL");
        matches!(&self.value, Tree::Scalar { text, is_quoted: false } if null(text))
    }
}

/// Returns a number without a fraction as a whole number, such as `1e3`.
fn whole(number: f64) -> Option<u64> {
    /// The largest whole number below which a float has no gaps.
    const MAX: f64 = 9_007_199_254_740_992.0;
    let is_whole = (0.0..=MAX).contains(&number) && number.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, and in range")]
    is_whole.then_some(number as u64)
}
