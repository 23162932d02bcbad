//! A value of the parsed rule file with its key, for validation.

use std::borrow::Cow;

use super::node::{Node, Value};
use super::scalar::{Scalar, ScalarKind};
use crate::problem::{Problems, Reported, quote};

/// A value with the key that it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct KeyValue<'n> {
    pub(crate) node: &'n Node,
    /// The key, for messages.
    pub(crate) key: &'n str,
}

/// Describes a value for messages.
pub(crate) fn describe(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => describe_scalar(scalar),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

/// Describes a scalar for messages, with its text.
fn describe_scalar(scalar: &Scalar) -> String {
    match scalar.kind {
        ScalarKind::Null | ScalarKind::Invalid => "nothing".to_owned(),
        ScalarKind::Bool | ScalarKind::Int(_) | ScalarKind::Float => quote(&scalar.text),
        ScalarKind::Text => format!("the text {}", quote(&scalar.text)),
    }
}

// === impl KeyValue ===

impl KeyValue<'_> {
    /// Reports an error about this value.
    pub(crate) fn report(self, fault: &str, help: impl Into<Cow<'static, str>>, problems: &mut Problems) -> Reported {
        problems.add(self.node.location, format!("{} {fault}", quote(self.key)), help)
    }
}
