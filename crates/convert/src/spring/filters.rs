//! Filters: changes of requests and responses.

use super::parts::Part;
use crate::draft::Route;
use crate::draft::value::{Map, Value};
use crate::guards::is_protective;
use crate::header_fields::changeable;
use crate::matching;
use crate::report::{Report, Verdict};
use crate::variables;

/// A verdict with its reason.
type Outcome = (Verdict, &'static str);

/// Applies a filter to a route. Returns `None` for the filters of limits.
pub(super) fn apply(part: &Part<'_>, route: &mut Route) -> Option<Outcome> {
    let lost = |reason: &'static str| (Verdict::Lost, reason);
    let value = |position: usize| part.values.get(position).map(String::as_str);
    Some(match part.name.to_ascii_lowercase().as_str() {
        "requestratelimiter" => return None,
        "stripprefix" => strip(value(0), route).unwrap_or(lost("paths are NOT stripped: the segments are not literal")),
        "prefixpath" => prefix(value(0), route).unwrap_or(lost("paths are NOT changed: not a literal path")),
        "rewritepath" => {
            let rewritten = rewrite(part, route);
            rewritten.unwrap_or(lost("paths are NOT rewritten: see `rewrite` of a route"))
        }
        "preservehostheader" => (Verdict::Same, "no `rewrite.host`"),
        "setrequesthostheader" => match value(0).and_then(matching::host) {
            Some(host) => set_rewrite(route, "host", &host),
            None => lost("not a host"),
        },
        "addrequestheader" => change(route, "request_headers", "add", part),
        "setrequestheader" => change(route, "request_headers", "set", part),
        "addresponseheader" => change(route, "response_headers", "add", part),
        "setresponseheader" => change(route, "response_headers", "set", part),
        "removerequestheader" => remove(route, "request_headers", value(0)),
        "removeresponseheader" => remove(route, "response_headers", value(0)),
        "redirectto" => redirect(part, route).unwrap_or(lost("see `redirect` of a route")),
        "requestsize" => size(part, route).unwrap_or(lost("not a size")),
        "retry" => lost("see `retry` of the upstream, which is on by default"),
        "circuitbreaker" | "hystrix" | "springcloudcircuitbreakerfilterfactory" => {
            lost("see `eject` and `timeouts` of the upstream; there is no fallback")
        }
        name if is_protective(name) => {
            route.close(format!("`{}` ({})", part.name, part.place));
            lost("its routes respond with 403, until you write `require`")
        }
        "deduperesponseheader" | "savesession" | "secureheaders" | "maprequestheader" => {
            lost("the rule file has no such filter")
        }
        _ => lost("the rule file has no such filter; its Java code is not known"),
    })
}

/// Removes segments from the start of the path. They must be literal in all paths of the route.
fn strip(count: Option<&str>, route: &mut Route) -> Option<Outcome> {
    let count: usize = count.map_or(Some(1), |count| count.parse().ok())?;
    let first = prefix_of(route.matches.paths.first()?, count)?;
    let is_same = route.matches.paths.iter().all(|path| prefix_of(path, count).as_ref() == Some(&first));
    if !is_same || has_rewrite(route, "strip_prefix") || has_rewrite(route, "add_prefix") {
        return None;
    }
    Some(if first.is_empty() { (Verdict::Same, "") } else { set_rewrite(route, "strip_prefix", &first) })
}

/// Returns the first segments of a pattern, if they are literal.
pub(super) fn prefix_of(path: &str, count: usize) -> Option<String> {
    let mut prefix = String::new();
    for segment in path.split('/').skip(1).take(count) {
        if segment.contains(['*', '{']) {
            return None;
        }
        prefix.push('/');
        prefix.push_str(segment);
    }
    Some(prefix)
}

fn prefix(text: Option<&str>, route: &mut Route) -> Option<Outcome> {
    let prefix = matching::exact(text?)?;
    (!has_rewrite(route, "add_prefix")).then(|| set_rewrite(route, "add_prefix", &prefix))
}

/// Converts an expression that only replaces a literal prefix: `/red/?(?<rest>.*), /blue/$\{rest}`.
fn rewrite(part: &Part<'_>, route: &mut Route) -> Option<Outcome> {
    let regex = part.arg("regexp").or_else(|| part.values.first().cloned())?;
    let replacement = part.arg("replacement").or_else(|| part.values.get(1).cloned())?.replace('\\', "");
    let (literal, group) = regex.strip_prefix('^').unwrap_or(&regex).split_once('(')?;
    let (group, _) = group.strip_suffix('$').unwrap_or(group).rsplit_once(')').filter(|(_, after)| after.is_empty())?;
    let (name, body) = match group.strip_prefix("?<") {
        Some(named) => named.split_once('>')?,
        None => ("1", group),
    };
    if !matches!(body, ".*" | "/?.*" | "/.*") {
        return None;
    }
    let reference =
        [format!("${{{name}}}"), format!("${name}")].into_iter().find(|text| replacement.ends_with(text.as_str()))?;
    let base = matching::exact(&format!("/{}", replacement.strip_suffix(&reference)?.trim_matches('/')))?;
    let literal = matching::exact(&format!("/{}", literal.trim_end_matches("/?").trim_matches('/')))?;
    if has_rewrite(route, "strip_prefix") || has_rewrite(route, "add_prefix") {
        return None;
    }
    for (key, path) in [("strip_prefix", &literal), ("add_prefix", &base)] {
        if path != "/" {
            set_rewrite(route, key, path);
        }
    }
    Some((Verdict::Same, "`rewrite`"))
}

fn has_rewrite(route: &Route, key: &str) -> bool {
    matches!(route.more.get("rewrite"), Some(Value::Map(map)) if map.get(key).is_some())
}

pub(super) fn set_rewrite(route: &mut Route, key: &str, value: &str) -> Outcome {
    route.set_rewrite(key, value);
    (Verdict::Same, "`rewrite`")
}

/// Sets or adds a field with a literal value.
fn change(route: &mut Route, key: &str, kind: &str, part: &Part<'_>) -> Outcome {
    let Some((name, values)) = part.values.split_first() else { return (Verdict::Lost, "it has no field") };
    // A comma belongs to the value.
    let value = values.join(",");
    if value.contains('{') || !variables::is_field_value(&value) {
        return (Verdict::Lost, "the value has variables of the path, which the rule file has not");
    }
    let Some(name) = changeable(name) else { return (Verdict::Lost, "the gateway sets this field itself") };
    update(route, key, |map| match map.get_mut(kind) {
        Some(Value::Map(fields)) => fields.set(&name, value),
        _ => map.set(kind, Map::of([(&name, value.into())])),
    });
    (Verdict::Same, if key == "request_headers" { "`request_headers`" } else { "`response_headers`" })
}

fn remove(route: &mut Route, key: &str, name: Option<&str>) -> Outcome {
    let Some(name) = name.and_then(changeable) else { return (Verdict::Lost, "the gateway sets this field itself") };
    update(route, key, |map| match map.get_mut("remove") {
        Some(Value::List(names)) => names.push(name.into()),
        _ => map.set("remove", vec![name.into()]),
    });
    (Verdict::Same, if key == "request_headers" { "`request_headers`" } else { "`response_headers`" })
}

/// Updates the changes of fields of a route.
fn update(route: &mut Route, key: &str, change: impl FnOnce(&mut Map)) {
    let mut map = match route.more.get(key) {
        Some(Value::Map(map)) => map.clone(),
        _ => Map::default(),
    };
    change(&mut map);
    route.more.set(key, map);
}

fn redirect(part: &Part<'_>, route: &mut Route) -> Option<Outcome> {
    let [status, url, ..] = part.values.as_slice() else { return None };
    let status: u64 = status.parse().ok().filter(|status| matches!(status, 301 | 302 | 303 | 307 | 308))?;
    let is_url = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/?=&%".contains(&byte))
    });
    if !is_url {
        return None;
    }
    route.upstream = None;
    route.more.set("redirect", Map::of([("to", url.as_str().into()), ("status", status.into())]));
    Some((Verdict::Same, "`redirect`"))
}

/// Reads `RequestSize`: a number of bytes, or a number with `B`, `KB`, `MB` or `GB`, in powers of 2.
fn size(part: &Part<'_>, route: &mut Route) -> Option<Outcome> {
    let text = part.arg("maxSize").or_else(|| part.values.first().cloned())?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok().filter(|number| *number <= 1 << 40)?;
    let unit = match text[digits..].trim() {
        "" | "B" => "B",
        "KB" => "KiB",
        "MB" => "MiB",
        "GB" if number <= 1_048_576 => "GiB",
        _ => return None,
    };
    route.more.set("max_body", format!("{number}{unit}"));
    Some((Verdict::Same, "`max_body`"))
}

/// Leaves out the keys that only routes with an upstream have.
pub(super) fn finish(route: &mut Route) {
    if route.upstream.is_none() {
        route.more.entries.retain(|(key, _)| !matches!(key.as_str(), "rewrite" | "request_headers"));
    }
}

/// Reports the filters of a route.
pub(super) fn report(part: &Part<'_>, (verdict, reason): Outcome, report: &mut Report) {
    report.add(&part.place, verdict, part.shown(), reason);
}
