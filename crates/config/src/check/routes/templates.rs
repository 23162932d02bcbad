//! Texts with variables.

use crate::check::Checked;
use crate::check::matching::route_context::RouteContext;
use crate::file::located::Located;
use crate::problem::suggest::nearest;
use crate::problem::{Problems, quote, quote_all};
use tidegate_rules::template::{Escape, Template, TemplateError, Variable};

/// The variables that a text may use.
#[derive(Clone, Copy)]
pub(crate) struct Variables {
    /// The names of the variables.
    names: &'static [&'static str],
    /// Whether values of identities are allowed.
    has_identity: bool,
    /// Whether requests get ids.
    has_ids: bool,
}

impl Variables {
    /// The variables of texts that depend on the request.
    pub(crate) fn request(context: RouteContext<'_>) -> Self {
        Self { names: &Variable::NAMES[..7], has_identity: true, has_ids: has_ids(context) }
    }

    /// The variables of the response to a rejected request.
    pub(super) fn rejection(context: RouteContext<'_>) -> Self {
        Self { names: &Variable::NAMES, ..Self::request(context) }
    }

    /// The variables of response fields. They do not include facts, because the request is no longer available.
    pub(crate) fn response(context: RouteContext<'_>) -> Self {
        Self { names: &["request_id", "route"], has_identity: false, has_ids: has_ids(context) }
    }
}

fn has_ids(context: RouteContext<'_>) -> bool {
    context.matching.requests.is_none_or(|requests| requests.request_id)
}

/// Parses a text with variables.
pub(super) fn template(
    raw: &Located<String>,
    escape: Escape,
    allowed: Variables,
    problems: &mut Problems,
) -> Checked<Template> {
    let text = raw.required(problems)?;
    let template = Template::parse(text, escape).map_err(|error| {
        let (message, help) = describe(error, allowed);
        raw.report(message, help, problems)
    })?;
    for variable in template.variables() {
        let name = variable.to_string();
        let is_allowed = match variable {
            Variable::Identity(_) => allowed.has_identity,
            _ => allowed.names.contains(&name.as_str()),
        };
        if !is_allowed {
            let message = format!("{} has no value here", braced(&name));
            return Err(raw.report(message, list(allowed), problems));
        }
        if *variable == Variable::RequestId && !allowed.has_ids {
            let message = "`{request_id}` has no value, since requests get no ids";
            return Err(raw.report(message, "set `request_id: true` in `requests`", problems));
        }
    }
    Ok(template)
}

/// Returns a message about a text that is not a template, and its help.
fn describe(error: TemplateError<'_>, allowed: Variables) -> (String, String) {
    match error {
        TemplateError::Unknown(name) => {
            let help = match nearest(name, allowed.names.iter().copied()) {
                Some(near) => format!(
                    "did you mean {}? The text {} is written {}",
                    braced(near),
                    braced(name),
                    quote(&format!("{{{{{name}}}}}"))
                ),
                None => list(allowed),
            };
            (format!("unknown variable {}", braced(name)), help)
        }
        TemplateError::Unclosed(name) => {
            let (open, doubled) = (quote(&format!("{{{name}")), quote(&format!("{{{{{name}")));
            let help = format!("write {}; the text {open} is written {doubled}", braced(name));
            (format!("the variable {open} is not closed by `}}`"), help)
        }
    }
}

fn braced(name: &str) -> String {
    quote(&format!("{{{name}}}"))
}

fn list(allowed: Variables) -> String {
    let names: Vec<_> = allowed.names.iter().map(|name| format!("{{{name}}}")).collect();
    let identity = if allowed.has_identity { ", `{jwt:CLAIM}`, `{key:NAME}`, `{basic:user}`" } else { "" };
    format!("the variables are {}{identity}", quote_all(names.iter().map(String::as_str)))
}
