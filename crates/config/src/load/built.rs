//! Rules that a program builds, as a tree of keys and values. They become the tree of a rule file, so that the same steps check
//! them.

use std::collections::HashSet;
use std::time::Duration;

use super::steps;
use crate::problem::{Location, Problems, quote};
use crate::yaml::node::{Entry, Node, Value};
use crate::yaml::scalar::Scalar;
use crate::{Config, FileChecks};
use tidegate_rules::client::ClientFunction;

/// A value of a key.
#[derive(Clone, Debug)]
pub enum Item {
    /// A text, without placeholders.
    Text(String),
    /// A whole number or a flag, in the syntax of the rule file.
    Plain(String),
    /// A function of the program that identifies clients.
    Function(ClientFunction),
    /// A list.
    List(Vec<Item>),
    /// A map.
    Map(Map),
    /// A part that errors name.
    Part(Part),
}

/// A route, a limit or a tier; or a resource or a descriptor of a control plane.
#[derive(Clone, Debug)]
pub struct Part {
    /// The kind in messages, such as `route`.
    pub kind: &'static str,
    /// The name of the rule.
    pub name: String,
    /// The keys of the rule and their values.
    pub keys: Map,
}

/// Keys with their values, in order.
#[derive(Clone, Debug, Default)]
pub struct Map(Vec<(String, Item)>);

/// The tree, and what it refers to.
#[derive(Default)]
pub(super) struct Tree {
    functions: Vec<ClientFunction>,
    pub(super) problems: Problems,
}

/// Checks rules and converts them.
///
/// # Errors
/// Returns all errors. Each names its route, limit or tier.
pub fn check(rules: &Map, checks: &'static dyn FileChecks) -> Result<Config, Problems> {
    let mut tree = Tree::default();
    let location = tree.problems.add_part("the rules", 1);
    let root = Node { location, value: tree.map(rules, location, "") };
    steps::check_built(root, &tree.functions, checks, tree.problems)
}

/// Returns the keys of these rules, each with the title of its map; and the keys that a library can use.
#[doc(hidden)]
pub fn used_and_known_keys(rules: &Map) -> [crate::file::used::Keys; 2] {
    use crate::file::ROUTE;
    use crate::file::keys::Note;
    use crate::file::used::{Keys, add_keys_of, known_keys};

    let (mut used, mut tree) = (std::collections::BTreeSet::new(), Tree::default());
    let root = Node { location: Location::START, value: tree.map(rules, Location::START, "") };
    add_keys_of(&root, &crate::file::FILE, &mut used);
    let of_gateway = ROUTE.keys().filter(|key| key.notes.contains(&Note::OnlyGateway));
    let of_gateway: Keys = of_gateway.map(|key| (ROUTE.title, key.name)).collect();
    [used, &known_keys() - &of_gateway]
}

impl Map {
    /// Sets a key. Replaces its earlier value.
    pub fn set(&mut self, key: &str, value: impl Into<Item>) {
        self.remove(key);
        self.0.push((key.to_owned(), value.into()));
    }

    /// Adds a key, also if another one has its name: the check reports it.
    pub fn add(&mut self, key: &str, value: impl Into<Item>) {
        self.0.push((key.to_owned(), value.into()));
    }

    /// Appends a value to the list of a key.
    pub fn push(&mut self, key: &str, value: impl Into<Item>) {
        if let Item::List(items) = self.entry(key, || Item::List(Vec::new())) {
            items.push(value.into());
        }
    }

    /// Changes the map of a key, which is added if it is absent.
    pub fn change(&mut self, key: &str, change: impl FnOnce(&mut Self)) {
        if let Item::Map(map) = self.entry(key, || Item::Map(Self::default())) {
            change(map);
        }
    }

    fn entry(&mut self, key: &str, absent: impl FnOnce() -> Item) -> &mut Item {
        let index = self.0.iter().position(|(other, _)| other == key).unwrap_or_else(|| {
            self.0.push((key.to_owned(), absent()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    /// Sets all keys of another map.
    pub fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|(key, value)| self.set(&key, value));
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(other, _)| other != key);
    }
}

impl Tree {
    fn node(&mut self, item: &Item, location: Location, owner: &str, position: usize) -> Node {
        let value = match item {
            Item::Text(text) => Value::Scalar(Scalar::quoted(text.clone())),
            Item::Plain(text) => Value::Scalar(Scalar::plain(text.clone())),
            Item::Function(function) => {
                self.functions.push(function.clone());
                Value::Scalar(Scalar::quoted(format!("function:{}", self.functions.len() - 1)))
            }
            Item::List(items) => {
                let node = |(index, item)| self.node(item, location, owner, index + 1);
                Value::List(items.iter().enumerate().map(node).collect())
            }
            Item::Map(map) => self.map(map, location, owner),
            Item::Part(part) => return self.part(part, owner, position),
        };
        Node { location, value }
    }

    /// Converts the part at this position among the parts of its owner. The owner of the first part is empty.
    pub(super) fn part(&mut self, Part { kind, name, keys }: &Part, owner: &str, position: usize) -> Node {
        let of_owner = if owner.is_empty() { String::new() } else { format!(" of {owner}") };
        let name = format!("{kind} {}{of_owner}", quote(name));
        let location = self.problems.add_part(&name, position);
        Node { location, value: self.map(keys, location, &name) }
    }

    fn map(&mut self, map: &Map, location: Location, owner: &str) -> Value {
        let (mut entries, mut seen) = (Vec::with_capacity(map.0.len()), HashSet::new());
        for (index, (key, item)) in map.0.iter().enumerate() {
            if !seen.insert(key) {
                self.problems.add(location, format!("{} is given twice", quote(key)), "keep one of them");
                continue;
            }
            let value = self.node(item, location, owner, index + 1);
            entries.push(Entry { key: key.clone(), location: value.location, value });
        }
        Value::Map(entries)
    }
}

// === impl Item ===

impl From<&str> for Item {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Item {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Item {
    fn from(number: u64) -> Self {
        Self::Plain(number.to_string())
    }
}

impl From<bool> for Item {
    fn from(flag: bool) -> Self {
        Self::Plain(flag.to_string())
    }
}

/// A duration in whole milliseconds. The check reports fractions.
impl From<Duration> for Item {
    fn from(duration: Duration) -> Self {
        Self::Text(match duration.subsec_nanos() % 1_000_000 {
            0 => format!("{}ms", duration.as_millis()),
            _ => format!("{duration:?}"),
        })
    }
}

impl From<Map> for Item {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

impl From<Part> for Item {
    fn from(part: Part) -> Self {
        Self::Part(part)
    }
}

impl<T: Into<Item>> FromIterator<T> for Item {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}
