//! The descriptors of a file, which are the rules of its domain.

use std::collections::HashMap;

use super::limit::read_limit;
use super::map::Map;
use super::{LongUnits, MAX_TEXT};
use crate::problem::{Checked, Location, Problems, quote};
use crate::yaml::node::Node;
use tidegate_service::Rule;

const KEYS: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// Reads the rules of one level, and of the levels below. Reports all errors. Rules with errors are left out. Adds units that
/// are longer than a day to `long_units`. Returns each rule with its location.
pub(super) fn read_rules(nodes: &[Node], long_units: &mut LongUnits, problems: &mut Problems) -> Vec<(Rule, Location)> {
    let mut seen: HashMap<(String, Option<String>), Location> = HashMap::new();
    let mut rules = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Ok(rule) = read_rule(node, long_units, problems) else { continue };
        if let Some(first) = seen.insert((rule.key.clone(), rule.value.clone()), node.location) {
            report_duplicate(&rule, first, node.location, problems);
            continue;
        }
        rules.push((rule, node.location));
    }
    rules
}

/// Reports a rule with the key and the value of the rule at `first`.
pub(super) fn report_duplicate(rule: &Rule, first: Location, location: Location, problems: &mut Problems) {
    let value = rule.value.as_deref().map(|value| format!(" and the value {}", quote(value)));
    let (place, value) = (problems.place(first, location), value.unwrap_or_default());
    let message = format!("a descriptor with the key {}{value} is already {place}", quote(&rule.key));
    problems.add(location, message, "remove one of them, or join their `descriptors`");
}

fn read_rule(node: &Node, long_units: &mut LongUnits, problems: &mut Problems) -> Checked<Rule> {
    let map = Map::read(node, "a descriptor", &KEYS, problems)?;
    warn_without_effect(map, problems);
    let rules = read_rules(map.list("descriptors", problems), long_units, problems);
    let rules = rules.into_iter().map(|(rule, _)| rule).collect();
    let limit = read_limit(map, long_units, problems);
    let shares_bucket = map.bool("share_threshold", problems);
    let (key, value) = (map.text("key", problems), map.text("value", problems));
    let Some((key, location)) = key? else {
        return Err(problems.add(map.location(), "`key` is missing", "name the key of a descriptor entry"));
    };
    let value = value?.map(|(value, _)| value.to_owned());
    let rule = Rule { key: key.to_owned(), value, shares_bucket: shares_bucket?, limit: limit?, rules };
    if key.len().max(rule.value.as_ref().map_or(0, String::len)) > MAX_TEXT {
        return Err(problems.add(location, format!("a key or value has at most {MAX_TEXT} bytes"), "use a wildcard"));
    }
    if rule.shares_bucket && !rule.has_wildcard() {
        let help = "add `*` to `value`, or remove `share_threshold`: without a wildcard, each value is one bucket";
        return Err(problems.add(location, "`share_threshold` needs a wildcard", help));
    }
    Ok(rule)
}

/// Warns about keys that change only metrics, and about metadata without a limit.
fn warn_without_effect(map: Map<'_>, problems: &mut Problems) {
    for key in ["detailed_metric", "value_to_metric"] {
        if let Some(node) = map.get(key).filter(|_| map.bool(key, problems).is_ok_and(|is_set| is_set)) {
            let message = format!("`{key}` has no effect");
            let help = "metrics have the names of rules: values of clients would make their number unbounded";
            problems.warn(node.location, &message, help);
        }
    }
    if let (Some(node), None) = (map.get("metadata"), map.get("rate_limit")) {
        problems.warn(
            node.location,
            "`metadata` has no effect without `rate_limit`",
            "move it to a descriptor with a limit",
        );
    }
}
