//! Reads the rules of Sentinel, as JSON: flow rules, rules of hot parameters, and rules of gateways with their API groups.
//!
//! `rules` reads the rules, with the defaults of Sentinel. `law` converts their numbers, and `clients` the parameters by
//! which they count. `resources` collects the limits of each resource, and writes a route for it, or a shared limit.

mod clients;
mod law;
mod resources;
mod rules;
#[cfg(test)]
mod tests;

use self::resources::Resources;
use self::rules::Rule;
use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::{Input, Text};
use crate::tree::{self, Node};

/// The deepest nesting of lists of rules in maps.
const MAX_DEPTH: usize = 4;

/// Returns `true` if a file has this format.
pub(crate) fn recognizes(_name: &str, text: &str) -> bool {
    let is_json = text.trim_start().starts_with(['[', '{']);
    let has = |word: &str| text.contains(word);
    is_json
        && (has("\"resource\"") && (has("\"count\"") || has("\"limitApp\"") || has("\"grade\""))
            || has("\"apiName\"") && has("\"predicateItems\"")
            || has("\"highestSystemLoad\""))
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let mut files = Vec::new();
    for path in input.paths {
        let text = input.read(path)?;
        // Tabs are not allowed in texts of JSON, and they are not indentation in YAML.
        let documents = tree::read(&text.name, &text.text.replace('\t', " "))?;
        files.push((text, documents));
    }
    let mut found = Vec::new();
    for (text, documents) in &files {
        documents.iter().for_each(|node| collect(text, node, 0, &mut found));
    }
    let mut resources = Resources::new(input.options.replicas);
    for rule in &found {
        resources.add_group(rule);
    }
    for rule in &found {
        resources.add(rule, draft, report);
    }
    resources.write(draft, report);
    Ok(())
}

/// Collects the rules in lists, also in lists of maps.
fn collect<'n>(text: &'n Text, node: &'n Node, depth: usize, found: &mut Vec<Rule<'n>>) {
    // Dashboards wrap a rule with its id and its application.
    let node = node.get("rule").filter(|rule| !rule.entries().is_empty()).unwrap_or(node);
    if Rule::is_rule(node) {
        return found.push(Rule { text, node });
    }
    if depth < MAX_DEPTH {
        node.items().iter().for_each(|item| collect(text, item, depth + 1, found));
        node.entries().iter().for_each(|entry| collect(text, &entry.value, depth + 1, found));
    }
}
