//! The file as a tree whose every key and value knows its location.

use super::problem::Location;
use super::scalar::Scalar;

/// The key of YAML 1.1 that is reported here, and stays in its map so that nobody misses what it stands for.
pub(crate) const MERGE_KEY: &str = "<<";

/// A value and where it starts.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) location: Location,
    pub(crate) value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key, where it starts, and its value; the keys of a map are all different.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) location: Location,
    pub(crate) value: Node,
}

// === impl Node ===

impl Node {
    /// The value of `key`; this value itself where it has none, so that there is always a location to point to.
    pub(crate) fn at(&self, key: &str) -> &Node {
        self.entries().iter().find(|entry| entry.key == key).map_or(self, |entry| &entry.value)
    }

    /// Is this a map with this key?
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries().iter().any(|entry| entry.key == key)
    }

    /// The entries of a map; none if it is not one.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Scalar(_) | Value::List(_) => &[],
        }
    }

    /// The items of a list; this value alone if it is not one.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(self),
        }
    }

    /// How many values are in it, itself included, and how deep they lie.
    pub(crate) fn measure(&self) -> (usize, usize) {
        let add = |(values, depth): (usize, usize), (more, deep): (usize, usize)| (values + more, depth.max(deep + 1));
        match &self.value {
            Value::Scalar(_) => (1, 0),
            Value::List(items) => items.iter().map(Node::measure).fold((1, 1), add),
            Value::Map(entries) => entries.iter().map(|entry| entry.value.measure()).fold((1, 1), add),
        }
    }
}
