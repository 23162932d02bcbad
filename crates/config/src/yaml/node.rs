//! The rule file as a tree of keys and values with their locations.

use super::scalar::{Origin, Scalar, ScalarKind};
use crate::problem::Location;

/// The merge key of YAML 1.1. It is reported as unsupported but stays in its map, so that required keys are not
/// reported as missing: the merged map may contain them.
pub(crate) const MERGE_KEY: &str = "<<";

/// A value with its location.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub location: Location,
    pub value: Value,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its location and its value. The keys of a map are unique.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: String,
    pub location: Location,
    pub value: Node,
}

/// The size of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The number of values, itself included.
    pub values: usize,
    /// The bytes of all texts.
    pub bytes: usize,
    /// The depth of lists and maps.
    pub depth: usize,
}

// === impl Node ===

impl Node {
    /// Returns `true` for a null value.
    pub(crate) fn is_null(&self) -> bool {
        self.scalar().is_some_and(Scalar::is_null)
    }

    /// Returns the scalar. Returns `None` for lists and maps.
    pub(crate) fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns the secret texts of a scalar that comes from files. Returns `None` for other values.
    pub(crate) fn secrets(&self) -> Option<&[String]> {
        match &self.scalar()?.origin {
            Origin::Files(texts) => Some(texts),
            Origin::Written | Origin::Variables => None,
        }
    }

    /// Returns `true` for a scalar that comes from files.
    pub(crate) fn is_secret(&self) -> bool {
        self.secrets().is_some()
    }

    /// Returns `true` for a scalar whose errors were reported.
    pub(crate) fn is_invalid(&self) -> bool {
        self.scalar().is_some_and(|scalar| scalar.kind == ScalarKind::Invalid)
    }

    /// Returns the entries of a map, or an empty slice for other values.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Scalar(_) | Value::List(_) => &[],
        }
    }

    /// Returns the items of a list, or this node alone for other values.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(self),
        }
    }

    /// Removes and returns all items but the first of the list with this key, if there is one.
    pub(crate) fn split_items(&mut self, key: &str) -> Vec<Node> {
        let Value::Map(entries) = &mut self.value else { return Vec::new() };
        match entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value.value) {
            Some(Value::List(items)) if !items.is_empty() => items.split_off(1),
            _ => Vec::new(),
        }
    }

    /// Returns the first item of the list with this key, if there is one.
    pub(crate) fn first_item_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Value::Map(entries) = &mut self.value else { return None };
        match &mut entries.iter_mut().find(|entry| entry.key == key)?.value.value {
            Value::List(items) => items.first_mut(),
            Value::Scalar(_) | Value::Map(_) => None,
        }
    }

    /// Returns the value of a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Measures this node.
    pub(crate) fn measure(&self) -> Size {
        let empty = Size { values: 1, bytes: 0, depth: 1 };
        let add = |whole: Size, (key, part): (usize, Size)| Size {
            values: whole.values + part.values,
            bytes: whole.bytes + key + part.bytes,
            depth: whole.depth.max(part.depth + 1),
        };
        match &self.value {
            Value::Scalar(scalar) => {
                let secrets = self.secrets().unwrap_or_default().iter().map(String::len).sum::<usize>();
                Size { values: 1, bytes: scalar.text.len() + secrets, depth: 0 }
            }
            Value::List(items) => items.iter().map(|item| (0, item.measure())).fold(empty, add),
            Value::Map(entries) => {
                entries.iter().map(|entry| (entry.key.len(), entry.value.measure())).fold(empty, add)
            }
        }
    }
}
