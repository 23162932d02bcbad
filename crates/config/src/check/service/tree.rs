//! The tree of a domain's rules, from the limits of the rule file.

use std::collections::HashMap;

use super::limit::CheckedLimit;
use crate::problem::{Checked, Location, Problems, quote};
use tidegate_service::Rule;

/// Builds the tree. Reports limits that match the same descriptors as an earlier limit.
pub(super) fn tree(limits: Vec<CheckedLimit>, problems: &mut Problems) -> Checked<Vec<Rule>> {
    let mut seen: HashMap<Vec<(String, Option<String>)>, Location> = HashMap::new();
    let (mut rules, mut checked) = (Vec::new(), Ok(()));
    for CheckedLimit { entries, limit, location } in limits {
        match seen.get(&entries) {
            None => {
                set(&mut rules, &entries, |rule| rule.limit = Some(limit));
                seen.insert(entries, location);
            }
            Some(first) => {
                let name = quote(limit.name.as_deref().unwrap_or_default());
                let place = problems.place(*first, location);
                let message = format!("limit {name} has the same `match` as the limit {place}");
                checked = Err(problems.add(location, message, "one limit applies to a descriptor: remove the other"));
            }
        }
    }
    checked.map(|()| rules)
}

/// Changes the rule of these entries, which is added if it is absent.
fn set(rules: &mut Vec<Rule>, entries: &[(String, Option<String>)], change: impl FnOnce(&mut Rule)) {
    let [(key, value), rest @ ..] = entries else { return };
    let position = rules.iter().position(|rule| (&rule.key, &rule.value) == (key, value)).unwrap_or_else(|| {
        rules.push(Rule { key: key.clone(), value: value.clone(), ..Rule::default() });
        rules.len() - 1
    });
    let rule = &mut rules[position];
    match rest {
        [] => change(rule),
        rest => set(&mut rule.rules, rest, change),
    }
}
