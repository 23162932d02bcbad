//! `request_headers` and `response_headers`: changes of header fields.

use http::HeaderValue;

use super::templates::{self, Variables};
pub(crate) use crate::check::names::{Message, changed_field as name};
use crate::check::{Checked, all, parsed};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_rules::route::{FieldChanges, FieldValue};
use tidegate_rules::template::Escape;

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
