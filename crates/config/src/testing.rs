//! For tests of rule files: checks of files that accept everything, and the keys that a file uses.

use std::collections::BTreeSet;

use super::keys::{Kind, Shape};
use super::node::Node;
use super::{FileChecks, LoadedVerifier, file};
use tidegate_rules::settings::identities::IdentitySettings;

/// Accepts `identities` without reading a file. All credentials are unknown.
#[derive(Debug)]
pub struct AnyIdentities;

impl FileChecks for AnyIdentities {
    fn verifier(&self, _: &IdentitySettings, _: bool) -> Option<LoadedVerifier> {
        Some(LoadedVerifier::default())
    }

    fn verifies_credentials(&self) -> bool {
        true
    }
}

/// Keys, each with the title of its map.
pub type Keys = BTreeSet<(&'static str, &'static str)>;

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
    let keys = file::SHAPES.iter().flat_map(|shape| shape.keys().map(|key| (shape.title, key)));
    let supported = keys.filter(|(_, key)| !matches!(key.kind, Kind::Unsupported));
    supported.map(|(title, key)| (title, key.name)).collect()
}
