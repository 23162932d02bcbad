//! Checks names: that they are unique, names of header fields, and JSON pointers.

use std::collections::HashMap;

use http::HeaderName;

use crate::check::Checked;
use crate::problem::{Location, Problems, quote};
use tidegate_rules::request::sanitize::hop_by_hop::is_hop_by_hop;
use tidegate_usage::Pointer;

/// The message whose fields are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request,
    Response,
}

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

/// Parses a JSON pointer to one value of a body.
pub(crate) fn pointer(text: &str, location: Location, problems: &mut Problems) -> Checked<Pointer> {
    Pointer::parse(text).map_err(|error| {
        let help = "write the keys with `/` before each, for example `/params/name`; for `/` in a key write `~1`, for `~` write `~0`";
        problems.add(location, format!("the JSON pointer {error}"), help)
    })
}

/// Parses the name of a field that rules may change.
pub(crate) fn changed_field(
    text: &str,
    location: Location,
    message: Message,
    problems: &mut Problems,
) -> Checked<HeaderName> {
    let name = header_name(text, location, problems)?;
    let help = match (message, name.as_str()) {
        (Message::Request, "host") => "use `rewrite: { host: NAME }`",
        (Message::Request, "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" | "via" | "expect") => {
            "leave it out: the gateway sets it for each request"
        }
        (_, "content-length" | "trailer") => "leave it out: the gateway frames messages",
        _ if is_hop_by_hop(&name) => "leave it out: the field concerns one connection only",
        _ => return Ok(name),
    };
    Err(problems.add(location, format!("{} must not be changed", quote(text)), help))
}
