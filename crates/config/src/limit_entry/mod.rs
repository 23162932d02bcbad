//! The entry of a limit as its rule file contains it, for programs that propose another value of a key.
//!
//! Placeholders are not replaced, so an entry has no text of a file with secrets.

mod flow;
mod tree;

use self::tree::Tree;
use crate::sources::rule_texts::RuleTexts;
use std::path::Path;
use tidegate_rules::limits::rule::Limit;

/// The keys of a limit with their values, in the order of the rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitEntry {
    /// The key of the entry in its map: the name of a shared limit, or `candidate`. `None` for an item of a list.
    key: Option<String>,
    /// The values in the flow style of YAML.
    values: Vec<(String, String)>,
}

// === impl LimitEntry ===

impl LimitEntry {
    /// Creates an entry with these keys and values in the flow style of YAML.
    pub fn new(key: Option<&str>, values: &[(&str, &str)]) -> Self {
        let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self { key: key.map(str::to_owned), values: values.collect() }
    }

    /// Finds the entry of a limit in the texts of a rule file with this name. Returns `None` if the texts do not contain it.
    pub fn find(texts: &RuleTexts, main: &str, limit: &Limit) -> Option<Self> {
        let file = &*limit.location.file;
        let included = texts.included.iter().find(|included| Path::new(file).ends_with(&included.path));
        let text = match included.filter(|_| file != main) {
            Some(included) => included.text.as_deref()?,
            None => &*texts.main,
        };
        Self::find_in(text, limit)
    }

    fn find_in(text: &str, limit: &Limit) -> Option<Self> {
        let (line, name) = (limit.location.line, limit.name.as_str());
        let found = tree::find(text, &|key, map| match key {
            // The location of a shared limit is its key.
            Some((key, at)) if limit.is_shared && at == line => key == name,
            Some((key, _)) => map.line == line && key == "candidate" && name.ends_with(".candidate"),
            None => map.line == line && map.get("name").is_some_and(|value| value.is_text(name)),
        });
        let (key, map) = found?;
        let values = map.entries.iter().map(|(key, _, value)| (key.clone(), flow::show(value)));
        Some(Self { key, values: values.collect() })
    }

    /// Returns the value of a key in the flow style of YAML.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// Replaces the value of a key. A new key becomes the last one.
    pub fn set(&mut self, key: &str, value: String) {
        match self.values.iter_mut().find(|(other, _)| other == key) {
            Some((_, before)) => *before = value,
            None => self.values.push((key.to_owned(), value)),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.values.retain(|(other, _)| other != key);
    }
}

/// Writes the entry in one line, as an item of a list or with its key.
impl std::fmt::Display for LimitEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values: Vec<_> = self.values.iter().map(|(key, value)| format!("{}: {value}", flow::key(key))).collect();
        match &self.key {
            Some(key) => write!(f, "{}: {{ {} }}", flow::key(key), values.join(", ")),
            None => write!(f, "- {{ {} }}", values.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, RuleTexts};

    /// Returns the entries of all limits of a rule file.
    fn entries(text: &str) -> Vec<String> {
        let config = Config::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
        let texts = RuleTexts::new(text.into(), Vec::new());
        let entry = |(_, limit): (&str, &Limit)| LimitEntry::find(&texts, "<text>", limit);
        config
            .rules
            .limits()
            .map(|limit| entry(limit).map_or_else(|| "-".to_owned(), |entry| entry.to_string()))
            .collect()
    }

    #[test]
    fn entry_keeps_all_keys_of_the_limit() {
        let text = "
limits:
  shared:
    mode: PER_CLIENT # a comment
    client: [ip, 'header:x-org']
    rate: 5
    interval: 1m
routes:
  - name: a
    match: { path: /a }
    limits:
      - name: first
        mode: PER_CLIENT
        client: ip
        rate: &rate 7
        interval: 10s
        when:
          methods: [POST, PUT]
          headers: { x-plan: 'a, \"b\"' }
        permits: { header: x-cost, max: 5 }
        candidate: { rate: 6, interval: 1m }
      - shared
  - { name: b, match: { path: /b }, limits: [{ name: one, mode: OVERALL, rate: *rate, interval: 1s }, { name: two, mode: OVERALL, rate: 2, interval: 1s }] }
";
        assert_eq!(
            entries(text),
            [
                "- { name: first, mode: PER_CLIENT, client: ip, rate: 7, interval: 10s, when: { methods: [POST, PUT], \
                 headers: { x-plan: \"a, \\\"b\\\"\" } }, permits: { header: x-cost, max: 5 }, candidate: { rate: 6, \
                 interval: 1m } }",
                "candidate: { rate: 6, interval: 1m }",
                "shared: { mode: PER_CLIENT, client: [ip, \"header:x-org\"], rate: 5, interval: 1m }",
                "- { name: one, mode: OVERALL, rate: 7, interval: 1s }",
                "- { name: two, mode: OVERALL, rate: 2, interval: 1s }",
            ]
        );
    }

    #[test]
    fn values_of_keys_are_replaced() {
        let mut entry = LimitEntry::new(None, &[("name", "a"), ("rate", "5"), ("burst", "9")]);
        entry.set("rate", "7".to_owned());
        entry.set("interval", "1m".to_owned());
        entry.remove("burst");
        assert_eq!(entry.to_string(), "- { name: a, rate: 7, interval: 1m }");
        assert_eq!((entry.get("rate"), entry.get("burst")), (Some("7"), None));
    }

    /// The text may have changed since the rules were read.
    #[test]
    fn other_texts_have_no_entry() {
        let text =
            "routes: [{ name: a, match: { path: / }, limits: [{ name: x, mode: OVERALL, rate: 1, interval: 1s }] }]";
        let config = Config::parse(text).expect("rules");
        let (_, limit) = config.rules.limits().next().expect("a limit");
        for other in ["", "a: [", "*a", "routes: [{ name: a }]", &format!("\n{text}")] {
            let texts = RuleTexts::new(other.into(), Vec::new());
            assert_eq!(LimitEntry::find(&texts, "<text>", limit), None, "{other}");
        }
    }
}
