//! Checks that names are unique.

use std::collections::HashMap;

use crate::config::located::Located;
use crate::config::problem::{Location, Problems, quote};

/// Reports names that occur more than once.
pub(super) fn duplicates<'f>(names: impl Iterator<Item = &'f Located<String>>, what: &str, problems: &mut Problems) {
    let mut seen: HashMap<&str, Location> = HashMap::new();
    for written in names {
        let Some(name) = written.get() else { continue };
        match seen.get(name.as_str()) {
            Some(first) => {
                let message = format!("{what} {} is already {}", quote(name), problems.place(*first, written.location));
                written.report(message, format!("give each {what} its own name"), problems);
            }
            None => drop(seen.insert(name, written.location)),
        }
    }
}
