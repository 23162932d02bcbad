//! Values of Envoy: durations, string matchers, percentages.

use std::time::Duration;

use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::tree::Node;

/// Returns a duration such as `1.5s`. `None` for other texts.
pub(super) fn duration(node: &Node) -> Option<Duration> {
    // Messages in JSON have a text; a few YAML files have `{ seconds, nanos }`.
    if !node.entries().is_empty() {
        let part = |key| node.get(key).map_or(Some(0), Node::number);
        return Some(Duration::new(part("seconds")?, u32::try_from(part("nanos")?).ok()?));
    }
    let seconds: f64 = node.text()?.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns a fraction such as `{ numerator: 50, denominator: HUNDRED }`, or the default value of a runtime fraction, from 0
/// to 1.
pub(super) fn fraction(node: &Node) -> Option<f64> {
    let node = node.get("default_value").unwrap_or(node);
    let numerator = node.get("numerator").map_or(Some(0.0), Node::float)?;
    let whole = match node.get("denominator").and_then(Node::text) {
        None | Some("HUNDRED") => 100.0,
        Some("TEN_THOUSAND") => 10_000.0,
        Some("MILLION") => 1_000_000.0,
        Some(_) => return None,
    };
    Some((numerator / whole).min(1.0))
}

/// Returns the condition that a value is this text. Two words have another meaning outside of a list.
pub(super) fn exact(value: &str) -> Value {
    match value {
        "present" | "absent" => Value::List(vec![value.into()]),
        _ => value.into(),
    }
}

/// Returns `true` for a value in which `*` stands for any characters.
pub(super) fn is_wild(value: &str) -> bool {
    value.contains('*')
}

/// Returns conditions with one header field.
pub(super) fn with_header(name: &str, value: Value) -> Match {
    Match { headers: Map::of([(name, value)]), ..Match::default() }
}

/// Returns a regular expression for a value in which each `*` stands for any characters.
pub(super) fn regex_of_wildcard(value: &str) -> String {
    let parts: Vec<String> = value.split('*').map(regex::escape).collect();
    format!("^{}$", parts.join(".*"))
}

/// Returns the conditions of matchers of header fields.
///
/// # Errors
/// Fails with a reason if the rule file cannot have a matcher.
pub(super) fn header_conditions(matchers: &[Node]) -> Result<Match, String> {
    let mut when = Match::default();
    for matcher in matchers {
        let name = matcher.get("name").and_then(Node::text).ok_or("a matcher has no `name`")?.to_ascii_lowercase();
        let condition = string_condition(matcher, &name)?;
        let is_inverted = matcher.get("invert_match").and_then(Node::flag).unwrap_or(false);
        let mut own = Match::default();
        set_header(&mut own, &name, condition)?;
        match is_inverted {
            true => when.not.push(own),
            false => add(&mut when, own)?,
        }
    }
    Ok(when)
}

/// Returns the conditions of matchers of query parameters.
///
/// # Errors
/// Fails with a reason if the rule file cannot have a matcher.
pub(super) fn query_conditions(matchers: &[Node]) -> Result<Match, String> {
    let mut when = Match::default();
    for matcher in matchers {
        let name = matcher.get("name").and_then(Node::text).ok_or("a matcher has no `name`")?;
        when.query.set(name, string_condition(matcher, name)?);
    }
    Ok(when)
}

/// Sets the condition of a field. Names with a colon are parts of the request line.
fn set_header(when: &mut Match, name: &str, condition: Value) -> Result<(), String> {
    match (name, &condition) {
        (":method", Value::Text(method)) => when.methods.push(method.clone()),
        (":authority" | "host", Value::Text(host)) => when.hosts.push(host.clone()),
        (name, _) if name.starts_with(':') => return Err(format!("this condition of `{name}` has no equivalent")),
        _ => when.headers.set(name, condition),
    }
    Ok(())
}

/// Adds conditions on other values.
fn add(when: &mut Match, own: Match) -> Result<(), String> {
    for (name, value) in own.headers.entries {
        if when.headers.get(&name).is_some() {
            return Err(format!("several conditions of `{name}` have no equivalent"));
        }
        when.headers.set(&name, value);
    }
    if !(own.methods.is_empty() || when.methods.is_empty()) || !(own.hosts.is_empty() || when.hosts.is_empty()) {
        return Err("several conditions of one value have no equivalent".to_owned());
    }
    when.methods.extend(own.methods);
    when.hosts.extend(own.hosts);
    Ok(())
}

/// Returns the condition of a matcher: of its `string_match`, or of an older key.
fn string_condition(matcher: &Node, name: &str) -> Result<Value, String> {
    let lost = |key: &str| Err(format!("`{key}` of `{name}` has no equivalent"));
    if let Some(string) = matcher.get("string_match") {
        if string.get("ignore_case").and_then(Node::flag) == Some(true) {
            return lost("ignore_case");
        }
        let entry = string.entries().iter().find(|entry| entry.key != "ignore_case");
        let entry = entry.ok_or_else(|| format!("`string_match` of `{name}` is empty"))?;
        return pattern(&entry.key, &entry.value).map_or_else(|| lost(&entry.key), Ok);
    }
    for entry in matcher.entries() {
        let key = entry.key.trim_end_matches("_match");
        match entry.key.as_str() {
            "name" | "invert_match" => {}
            "present_match" => {
                return Ok(if entry.value.flag() == Some(false) { "absent" } else { "present" }.into());
            }
            _ => return pattern(key, &entry.value).map_or_else(|| lost(&entry.key), Ok),
        }
    }
    Ok("present".into())
}

/// Returns the condition of a pattern of this kind.
fn pattern(kind: &str, node: &Node) -> Option<Value> {
    let text = || node.text().map(str::to_owned);
    let map = |key: &str, value: String| Value::Map(Map::of([(key, value.into())]));
    match kind {
        "exact" => text().map(|text| exact(&text)),
        "prefix" | "suffix" | "contains" => text().filter(|text| !text.is_empty()).map(|text| map(kind, text)),
        "safe_regex" => {
            let regex = node.get("regex").and_then(Node::text)?;
            let whole = format!("^(?:{regex})$");
            regex::bytes::RegexBuilder::new(&whole).unicode(false).build().is_ok().then(|| map("regex", whole))
        }
        _ => None,
    }
}
