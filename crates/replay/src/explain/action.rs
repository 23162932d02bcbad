//! Explains the action of a route: the request that the upstream receives, or the response of the gateway. Values of
//! header fields are not shown, since they can be secrets.

use std::borrow::Cow;

use tidegate_config::quote;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::{Action, FieldChanges, FieldValue, HostRewrite, Route};
use tidegate_rules::rules::Rules;
use tidegate_rules::template::{Template, Values};

/// Describes the action for admitted requests.
pub(super) fn describe_action(route: &Route) -> String {
    match &route.action {
        Action::Forward(Some(upstream)) => format!("to upstream {}", quote(upstream)),
        Action::Forward(None) => "to the inner service".to_owned(),
        Action::Redirect(redirect) => format!("redirected with {}", redirect.status.as_u16()),
        Action::Respond(response) => format!("answered with {}", response.status.as_u16()),
    }
}

/// Returns the path that the upstream receives.
pub fn forwarded_path<'f>(route: Option<&Route>, facts: &'f Facts<'f>) -> Cow<'f, str> {
    let rewritten = route.and_then(|route| route.rewrite.as_ref()?.path(&facts.path));
    rewritten.map_or_else(|| facts.path.normalized().into(), Cow::Owned)
}

/// Lists the changes of the request and the response, one in a line.
pub(super) fn changes(route: &Route, rules: &Rules, facts: &Facts<'_>) -> Vec<String> {
    // Without `..`, so that the compiler names a new key. Other parts of the explanation show the ignored keys, unless these
    // keys change neither the request nor the decision about it.
    #[rustfmt::skip]
    let Route {
        name, action, rewrite, request_headers, response_headers, timeout, compression,
        matcher: _, limits: _, max_body: _, quota: _, cors: _, concurrency: _, require: _, authorize: _, reject: _,
        upgrades: _, rate_limit_headers: _, inherited: _, on_limit: _,
    } = route;
    let mut lines = Vec::new();
    if let Action::Redirect(redirect) = action {
        let client = rules.addresses.address(facts);
        let values = Values { route: name, client, facts: Some(facts), ..Values::default() };
        let location = redirect.location(&values);
        let location = location.as_ref().and_then(|location| location.to_str().ok());
        lines.push(format!("location {}", location.unwrap_or("unknown")));
    }
    if let Some(rewrite) = rewrite {
        lines.extend(rewrite.path(&facts.path).map(|path| format!("the upstream receives path {path}")));
        match &rewrite.host {
            HostRewrite::Keep => {}
            HostRewrite::Upstream => lines.push("the upstream receives the target's name as host".to_owned()),
            HostRewrite::Fixed(host) => {
                lines.push(format!("the upstream receives host {}", String::from_utf8_lossy(host.as_bytes())));
            }
        }
    }
    if let Some(changes) = request_headers {
        lines.extend(describe_fields(changes).map(|change| format!("request: {change}")));
    }
    if let Some(changes) = response_headers {
        lines.extend(describe_fields(changes).map(|change| format!("response: {change}")));
    }
    if let Some(compression) = compression {
        let codings: Vec<_> = compression.codings.iter().map(|coding| coding.name()).collect();
        lines.push(format!("response: compressed with {} if the client accepts it", codings.join(" or ")));
    }
    if let Some(timeout) = timeout {
        lines.push(format!("timeout {timeout:?}"));
    }
    lines
}

fn describe_fields(changes: &FieldChanges) -> impl Iterator<Item = String> {
    let source = |value: &FieldValue| match value {
        FieldValue::Fixed(_) => String::new(),
        FieldValue::Template(template) => format!(" from {}", variables(template)),
    };
    let removed = changes.remove.iter().map(|name| format!("removes {name}"));
    let set = changes.set.iter().map(move |(name, value)| format!("sets {name}{}", source(value)));
    let added = changes.add.iter().map(move |(name, value)| format!("adds {name}{}", source(value)));
    removed.chain(set).chain(added)
}

fn variables(template: &Template) -> String {
    template.variables().map(|variable| format!("{{{variable}}}")).collect::<Vec<_>>().join(", ")
}
