//! The action of a route, and its changes of requests and responses.

use serde_json::{Map, Value, json};

use tidegate_rules::route::{Action, FieldChanges, FieldValue, FixedResponse, HostRewrite, Rejection, Route};

/// Returns the keys of the action.
pub(super) fn show(route: &Route) -> Value {
    let (redirect, respond) = match &route.action {
        Action::Forward(_) => (None, None),
        Action::Redirect(redirect) => {
            (Some(json!({ "to": redirect.to.to_string(), "status": redirect.status.as_u16() })), None)
        }
        Action::Respond(response) => (None, Some(show_fixed(response))),
    };
    let rewrite = route.rewrite.as_ref().map(|rewrite| {
        let host = match &rewrite.host {
            HostRewrite::Keep => None,
            HostRewrite::Upstream => Some("upstream".to_owned()),
            HostRewrite::Fixed(host) => Some(text(host.as_bytes())),
        };
        json!({ "strip_prefix": rewrite.strip_prefix, "add_prefix": rewrite.add_prefix, "host": host, "responses": rewrite.responses })
    });
    let reject = route.reject.as_deref().map(|reject| match reject {
        Rejection::Preset(preset) => preset.name().into(),
        Rejection::Text(reject) => json!({
            "status": reject.status.as_u16(),
            "content_type": text(reject.content_type.as_bytes()),
            "body": reject.body.to_string(),
        }),
    });
    json!({
        "upstream": route.action.upstream().map(|name| &**name),
        "redirect": redirect,
        "respond": respond,
        "rewrite": rewrite,
        "request_headers": route.request_headers.as_deref().map(|changes| show_fields(changes, false)),
        "response_headers": route.response_headers.as_deref().map(|changes| show_fields(changes, true)),
        "compression": route.compression.as_deref(),
        "reject": reject,
    })
}

/// Shows the changes of fields. Fixed values for upstreams are often secrets, and are masked.
fn show_fields(changes: &FieldChanges, is_public: bool) -> Value {
    let show = |value: &FieldValue| match value {
        FieldValue::Fixed(value) if is_public => text(value.as_bytes()),
        FieldValue::Template(template) if is_public => template.to_string(),
        FieldValue::Template(template) => template.variables().map(|variable| format!("{{{variable}}}")).collect(),
        FieldValue::Fixed(_) => "***".to_owned(),
    };
    let fields = |pairs: &[(http::HeaderName, FieldValue)]| -> Map<_, _> {
        pairs.iter().map(|(name, value)| (name.to_string(), show(value).into())).collect()
    };
    let removed: Vec<_> = changes.remove.iter().map(http::HeaderName::as_str).collect();
    json!({ "set": fields(&changes.set), "add": fields(&changes.add), "remove": removed })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a response of the rule file, without its body.
pub(super) fn show_fixed(response: &FixedResponse) -> Value {
    let names: Vec<_> = response.headers.keys().map(http::HeaderName::as_str).collect();
    let content_type = response.content_type.as_ref().map(|value| text(value.as_bytes()));
    json!({
        "status": response.status.as_u16(),
        "content_type": content_type,
        "body_bytes": response.body.len(),
        "headers": names,
    })
}
