//! A value of the tree that is held against its kind, and what it is in words.

use super::node::{Node, Value};
use super::problem::{Broken, Problems, quote};
use super::scalar::{Scalar, ScalarKind};

/// A value that is held against its kind.
#[derive(Clone, Copy)]
pub(super) struct Item<'n> {
    pub(super) node: &'n Node,
    /// The key that it belongs to, for messages.
    pub(super) key: &'n str,
}

/// What a value is, in words.
pub(super) fn describe(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => describe_scalar(scalar),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

/// What a word is, with the word.
fn describe_scalar(scalar: &Scalar) -> String {
    match scalar.kind {
        ScalarKind::Null => "nothing".to_owned(),
        ScalarKind::Bool | ScalarKind::Int(_) | ScalarKind::Float => quote(&scalar.text),
        ScalarKind::Text => format!("the text {}", quote(&scalar.text)),
    }
}

// === impl Item ===

impl Item<'_> {
    /// Reports something about this value.
    pub(super) fn wrong(self, what: &str, help: impl Into<String>, problems: &mut Problems) -> Broken {
        problems.add(self.node.location, format!("{} {what}", quote(self.key)), help)
    }
}
