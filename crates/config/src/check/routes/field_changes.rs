//! `request_headers` and `response_headers`: changes of header fields.

use http::{HeaderName, HeaderValue};

use super::templates::{self, Variables};
use crate::check::names::header_name;
use crate::check::{Checked, all, parsed};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Location, Problems, quote};
use tidegate_rules::request::sanitize::hop_by_hop::is_hop_by_hop;
use tidegate_rules::route::{FieldChanges, FieldValue};
use tidegate_rules::template::Escape;

/// The message whose fields are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request,
    Response,
}

pub(super) fn field_changes(
    raw: &Located<file::FieldChanges>,
    message: Message,
    variables: Variables,
    problems: &mut Problems,
) -> Checked<Option<FieldChanges>> {
    let Some(raw) = raw.optional(problems)? else { return Ok(None) };
    let remove = raw.remove.items().iter();
    let remove = all(remove.map(|raw| name(raw.required(problems)?, raw.location, message, problems)));
    let values = |raw: &Located<Vec<(String, Located<String>)>>, problems: &mut Problems| {
        all(raw.optional(problems)?.into_iter().flatten().map(|(key, value)| {
            let name = name(key, value.key_location(), message, problems);
            let value = field_value(value, variables, problems);
            Ok((name?, value?))
        }))
    };
    let (set, add) = (values(&raw.set, problems), values(&raw.add, problems));
    Ok(Some(FieldChanges { remove: remove?, set: set?, add: add? }))
}

/// Parses the name of a field that rules may change.
pub(crate) fn name(text: &str, location: Location, message: Message, problems: &mut Problems) -> Checked<HeaderName> {
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

fn field_value(raw: &Located<String>, variables: Variables, problems: &mut Problems) -> Checked<FieldValue> {
    let fixed = value(raw, problems)?;
    let template = templates::template(raw, Escape::Field, variables, problems)?;
    let has_variables = template.variables().next().is_some();
    Ok(match has_variables {
        true => FieldValue::Template(template),
        // The text of the template has no escaped braces.
        false => FieldValue::Fixed(HeaderValue::from_str(template.to_string().trim()).unwrap_or(fixed)),
    })
}

/// Parses the value of a field.
pub(crate) fn value(raw: &Located<String>, problems: &mut Problems) -> Checked<HeaderValue> {
    let text = raw.required(problems)?.trim();
    let value = HeaderValue::from_str(text).map_err(|_| format!("{} is not a header field value", quote(text)));
    parsed(value, "remove the control characters", raw.location, problems)
}
