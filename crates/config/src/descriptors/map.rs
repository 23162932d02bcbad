//! The maps of these files. Scalars are read as envoyproxy/ratelimit reads them: a number is a text where a text is needed, a
//! null value is a missing key, and `yes` and `on` are true.

use crate::problem::suggest::nearest;
use crate::problem::{Checked, Location, Problems, quote, quote_all};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Entry, MERGE_KEY, Node, Value};
use crate::yaml::scalar::ScalarKind;

/// All keys of these files. envoyproxy/ratelimit accepts each of them in each map.
const ALL_KEYS: [&str; 16] = [
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// A map whose keys are known.
#[derive(Clone, Copy)]
pub(super) struct Map<'n> {
    node: &'n Node,
}

impl<'n> Map<'n> {
    /// Checks that a value is a map with only these keys. `what` describes the map.
    pub(super) fn read(node: &'n Node, what: &str, keys: &[&'static str], problems: &mut Problems) -> Checked<Self> {
        if !matches!(node.value, Value::Map(_)) {
            let message = format!("{what} is a map, not {}", describe(node));
            return Err(problems.add(
                node.location,
                message,
                format!("write {} and their values", quote_all(keys.iter().copied())),
            ));
        }
        let unknown = node.entries().iter().filter(|entry| entry.key != MERGE_KEY && !keys.contains(&&*entry.key));
        unknown.for_each(|entry| report_unknown(entry, what, keys, problems));
        Ok(Self { node })
    }

    /// Returns the location of the map.
    pub(super) fn location(&self) -> Location {
        self.node.location
    }

    /// Returns the value of a key, unless it is missing or null.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        self.node.get(key).filter(|node| !node.is_null())
    }

    /// Returns a text. Returns `None` if it is missing or empty.
    pub(super) fn text(&self, key: &str, problems: &mut Problems) -> Checked<Option<(&'n str, Location)>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match node.scalar() {
            Some(scalar) if scalar.text.is_empty() => Ok(None),
            Some(scalar) => Ok(Some((scalar.text.as_str(), node.location))),
            None => Err(expected(key, node, "a text", "write a text", problems)),
        }
    }

    /// Returns a truth value: `false` if it is missing.
    pub(super) fn bool(&self, key: &str, problems: &mut Problems) -> Checked<bool> {
        let Some(node) = self.get(key) else { return Ok(false) };
        let word = node.scalar().map(|scalar| scalar.text.to_ascii_lowercase());
        match word.as_deref() {
            Some("true" | "yes" | "on" | "y") => Ok(true),
            Some("false" | "no" | "off" | "n") => Ok(false),
            _ => Err(expected(key, node, "`true` or `false`", "write `true`, or remove the key", problems)),
        }
    }

    /// Returns a number of requests. Returns `None` if it is missing.
    pub(super) fn number(&self, key: &str, problems: &mut Problems) -> Checked<Option<u32>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let number = match node.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Int(number)) => u32::try_from(number).ok(),
            _ => None,
        };
        let help = "write a number from 0 to 4294967295";
        number.map(Some).ok_or_else(|| expected(key, node, "a whole number from 0 to 4294967295", help, problems))
    }

    /// Returns the items of a list. Returns no items if it is missing, or if it is no list, which is reported.
    pub(super) fn list(&self, key: &str, problems: &mut Problems) -> &'n [Node] {
        let Some(node) = self.get(key) else { return &[] };
        match &node.value {
            Value::List(items) => items,
            Value::Scalar(_) | Value::Map(_) => {
                expected(key, node, "a list", "begin each item with `-`", problems);
                &[]
            }
        }
    }
}

fn report_unknown(entry: &Entry, what: &str, keys: &[&'static str], problems: &mut Problems) {
    let key = quote(&entry.key);
    if ALL_KEYS.contains(&&*entry.key) {
        // envoyproxy/ratelimit ignores it there.
        let message = format!("{key} has no effect in {what}");
        let help = format!("move it, or remove it: {what} has {}", quote_all(keys.iter().copied()));
        return problems.warn(entry.location, &message, help);
    }
    let help = match nearest(&entry.key, keys.iter().copied()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("{what} has {}", quote_all(keys.iter().copied())),
    };
    problems.add(entry.location, format!("unknown key {key}"), help);
}

/// Reports a value of another type.
fn expected(
    key: &str,
    node: &Node,
    what: &str,
    help: &'static str,
    problems: &mut Problems,
) -> crate::problem::Reported {
    KeyValue { node, key }.report(&format!("is {what}, not {}", describe(node)), help, problems)
}
