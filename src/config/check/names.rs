//! Unique names.

use std::collections::HashMap;

use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};

/// Reports names that occur more than once.
pub(super) fn duplicates<'f>(
    items: impl Iterator<Item = (Option<&'f str>, &'f Node)>,
    what: &str,
    problems: &mut Problems,
) {
    let mut seen: HashMap<&str, Location> = HashMap::new();
    for (name, node) in items {
        let (Some(name), location) = (name, node.at("name").location) else { continue };
        match seen.get(name) {
            Some(first) => {
                let message = format!("{what} {} is already on line {}", quote(name), first.line);
                problems.add(location, message, format!("give each {what} its own name"));
            }
            None => drop(seen.insert(name, location)),
        }
    }
}
