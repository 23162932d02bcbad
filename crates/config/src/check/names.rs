//! Checks names: that they are unique, and names of header fields.

use std::collections::HashMap;

use http::HeaderName;

use crate::check::Checked;
use crate::problem::{Location, Problems, quote};

/// Reports names that occur more than once, at their locations.
pub(crate) fn duplicates<'f>(names: impl Iterator<Item = (&'f str, Location)>, what: &str, problems: &mut Problems) {
    let mut seen: HashMap<&str, Location> = HashMap::new();
    for (name, location) in names {
        match seen.get(name) {
            Some(first) => {
                let message = format!("{what} {} is already {}", quote(name), problems.place(*first, location));
                problems.add(location, message, format!("give each {what} its own name"));
            }
            None => drop(seen.insert(name, location)),
        }
    }
}

/// Parses the name of a header field.
pub(super) fn header_name(text: &str, location: Location, problems: &mut Problems) -> Checked<HeaderName> {
    // Field names can contain these characters, but only patterns and lists have them.
    let parsed = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains(['*', '|', '^', '~', '!']));
    parsed.ok_or_else(|| {
        let message = format!("{} is not a header field name", quote(text));
        problems.add(location, message, "use letters, digits and `-`, without a colon or pattern")
    })
}
