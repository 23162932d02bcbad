//! The tree of a domain's rules, and the search for the limit of a descriptor.

pub(crate) mod paths;
mod pattern;
pub(crate) mod replaced;
pub(crate) mod rule;

use hashbrown::HashMap;
use smallvec::SmallVec;

use self::pattern::Pattern;
use self::rule::Rule;
use crate::call::Entry;

/// The rules of one level.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// The rules with a value, by key and value, wildcards included.
    exact: HashMap<Box<str>, HashMap<Box<str>, usize>>,
    /// The rules with wildcards, in the order of the configuration.
    wildcards: Vec<(Wildcard, usize)>,
    /// The rules without a value, by key.
    keys: HashMap<Box<str>, usize>,
    nodes: Vec<Node>,
}

/// The rules that match the entries of a descriptor, one for each.
pub(crate) type Path<'t> = SmallVec<[&'t Node; 4]>;

/// The wildcards of a rule.
#[derive(Debug, PartialEq, Eq)]
enum Wildcard {
    /// In the value. The key must be equal.
    Value { key: Box<str>, pattern: Pattern },
    /// In the key. The pattern matches the text `KEY_VALUE` of the entry.
    Entry(Pattern),
}

/// One rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The name of a limit of this rule.
    pub(crate) name: Box<str>,
    /// How the buckets of the limits below this rule depend on the entry.
    pub(crate) spread: Spread,
    /// The position of the limit in the domain.
    pub(crate) limit: Option<usize>,
    pub(crate) next: Level,
}

/// A rule that matches an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRule<'t> {
    /// The name of the rule, after the names of the rules above it.
    pub name: &'t str,
    /// Why the rule matches.
    pub matched: Matched,
    /// Whether the limits below this rule count each value of the entry separately.
    pub is_counted: bool,
}

/// Why a rule matches an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched {
    /// It has the key and the value.
    Exact,
    /// It is the first rule whose wildcards match.
    Wildcard,
    /// It has the key, and no value. No other rule matches.
    Key,
}

/// How the buckets of a limit depend on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All entries that match have one bucket.
    Shared,
    /// Each value has a bucket.
    ByValue,
    /// Each key with a value has a bucket.
    ByEntry,
}

/// The rule with the same key and value is already present.
#[derive(Debug)]
pub(crate) struct Duplicate;

impl Spread {
    pub(crate) fn new(rule: &Rule) -> Self {
        match &rule.value {
            _ if rule.shares_bucket => Self::Shared,
            _ if rule.key.contains('*') => Self::ByEntry,
            Some(value) if !value.contains('*') => Self::Shared,
            _ => Self::ByValue,
        }
    }
}

impl Level {
    /// Adds a rule after the others.
    pub(crate) fn add(&mut self, rule: &Rule, node: Node) -> Result<(), Duplicate> {
        let number = self.nodes.len();
        let key = || rule.key.as_str().into();
        let before = match &rule.value {
            Some(value) => self.exact.entry(key()).or_default().insert(value.as_str().into(), number),
            None => self.keys.insert(key(), number),
        };
        if before.is_some() {
            return Err(Duplicate);
        }
        let value = rule.value.as_deref().unwrap_or_default();
        let wildcard = match Pattern::parse(&rule.key) {
            Some(_) if rule.value.is_some() => Pattern::parse(&format!("{}_{value}", rule.key)).map(Wildcard::Entry),
            Some(pattern) => Some(Wildcard::Entry(pattern)),
            None => Pattern::parse(value).map(|pattern| Wildcard::Value { key: key(), pattern }),
        };
        self.wildcards.extend(wildcard.map(|wildcard| (wildcard, number)));
        self.nodes.push(node);
        Ok(())
    }

    /// Returns the rules that match the entries, one for each. Returns `None` if an entry has no rule. Calls `found` with each
    /// rule.
    pub(crate) fn find<'t>(&'t self, entries: &[Entry<'_>], mut found: impl FnMut(FoundRule<'t>)) -> Option<Path<'t>> {
        let (mut level, mut path) = (self, Path::new());
        for entry in entries {
            let (node, matched) = level.find_one(entry)?;
            found(FoundRule { name: &node.name, matched, is_counted: node.spread != Spread::Shared });
            path.push(node);
            level = &node.next;
        }
        Some(path)
    }

    /// Returns the rule with exactly this key and value, or else the first with matching wildcards, or else the rule
    /// with this key and no value.
    fn find_one(&self, entry: &Entry<'_>) -> Option<(&Node, Matched)> {
        let exact = self.exact.get(entry.key).and_then(|values| values.get(entry.value));
        let exact = exact.map(|number| (*number, Matched::Exact));
        let found = exact.or_else(|| Some((self.find_wildcard(entry)?, Matched::Wildcard)));
        let (number, matched) = found.or_else(|| Some((*self.keys.get(entry.key)?, Matched::Key)))?;
        Some((self.nodes.get(number)?, matched))
    }

    fn find_wildcard(&self, entry: &Entry<'_>) -> Option<usize> {
        if self.wildcards.is_empty() {
            return None;
        }
        let mut text = None;
        let mut matches = |wildcard: &Wildcard| match wildcard {
            Wildcard::Value { key, pattern } => **key == *entry.key && pattern.matches(entry.value),
            Wildcard::Entry(pattern) => {
                pattern.matches(text.get_or_insert_with(|| format!("{}_{}", entry.key, entry.value)))
            }
        };
        self.wildcards.iter().find(|(wildcard, _)| matches(wildcard)).map(|(_, number)| *number)
    }
}
