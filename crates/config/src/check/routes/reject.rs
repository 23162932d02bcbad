//! `reject` of a route: the response to requests that the limits reject.

use super::action;
use super::templates::{self, Variables};
use crate::check::Checked;
use crate::check::matching::route_context::RouteContext;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Problems, quote};
use crate::{Purpose, file};
use tidegate_rules::route::{Rejection, RejectionPreset, RejectionText};
use tidegate_rules::template::{Escape, Variable};

/// Converts `reject`.
pub(crate) fn reject(
    raw: &Located<ValueOrMap<RejectionPreset, file::Reject>>,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Option<Box<Rejection>>> {
    let Some(value) = raw.optional(problems)? else { return Ok(None) };
    let rejection = match value {
        ValueOrMap::Value(RejectionPreset::JsonRpc) if context.purpose == Purpose::Layer => {
            let message = "`jsonrpc` works only in the gateway: a layer does not read the bodies with the ids of calls";
            return Err(raw.report(message, "leave it out", problems));
        }
        ValueOrMap::Value(preset) => Rejection::Preset(*preset),
        ValueOrMap::Map(keys) => Rejection::Text(text(keys, context, problems)?),
    };
    Ok(Some(Box::new(rejection)))
}

fn text(raw: &file::Reject, context: RouteContext<'_>, problems: &mut Problems) -> Checked<RejectionText> {
    let code = raw.status.optional(problems)?.copied().unwrap_or(429);
    let status = action::status(code, &raw.status, problems);
    let content_type = action::content_type(&raw.content_type, "application/json", problems)?;
    let escape = content_type.to_str().ok().and_then(Escape::of_content_type);
    let body = templates::template(&raw.body, escape.unwrap_or(Escape::Text), Variables::rejection(context), problems)?;
    let is_safe = |variable: &Variable| matches!(variable, Variable::RetryAfter | Variable::Limit | Variable::Route);
    if let (None, Some(variable)) = (escape, body.variables().find(|variable| !is_safe(variable))) {
        let message = format!("{} cannot be escaped for this content type", quote(&format!("{{{variable}}}")));
        let help = "use JSON, HTML, XML or `text/plain`, or remove the variable";
        return Err(raw.body.report(message, help, problems));
    }
    Ok(RejectionText { status: status?, content_type, body })
}
