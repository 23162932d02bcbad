//! For tests: the keys that a rule file uses.

use std::collections::BTreeSet;

use super::SHAPES;
use super::keys::{Kind, Shape};
use crate::yaml::node::Node;

/// Keys, each with the title of its map.
pub(crate) type Keys = BTreeSet<(&'static str, &'static str)>;

/// Adds the keys in the value of a key of this kind.
fn add_keys(node: &Node, kind: &Kind, keys: &mut Keys) {
    match kind {
        Kind::Map(shape) | Kind::Short(_, shape) | Kind::OrMap(_, shape) => add_keys_of(node, shape, keys),
        Kind::List(kind) | Kind::Many(kind) | Kind::OneOrMany(kind) => {
            node.items().iter().for_each(|node| add_keys(node, kind, keys));
        }
        Kind::Conditions(kind, _) => {
            let values = node.entries().iter().flat_map(|entry| entry.value.items());
            values.for_each(|value| add_keys(value, kind, keys));
        }
        Kind::OrNone(kind) => add_keys(node, kind, keys),
        Kind::Named(kind) => node.entries().iter().for_each(|entry| add_keys(&entry.value, kind, keys)),
        _ => {}
    }
}

/// Adds the keys of a map.
pub(crate) fn add_keys_of(node: &Node, shape: &Shape, keys: &mut Keys) {
    for entry in node.entries() {
        let Some(key) = shape.key(&entry.key) else { continue };
        keys.insert((shape.title, key.name));
        add_keys(&entry.value, &key.kind, keys);
    }
}

/// Returns all keys, each with the title of its map.
pub(crate) fn known_keys() -> Keys {
    let keys = SHAPES.iter().flat_map(|shape| shape.keys().map(|key| (shape.title, key)));
    let supported = keys.filter(|(_, key)| !matches!(key.kind, Kind::Unsupported));
    supported.map(|(title, key)| (title, key.name)).collect()
}
