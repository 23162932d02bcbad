//! Validates a tree against the [`keys`](crate::file::keys) of the rule file: the maps and lists, and their keys.
//!
//! Valid values are returned with their [locations](crate::file::located::Located) for serde, which deserializes them into
//! [`file`](crate::file). Invalid values are reported and become null, so that later steps neither fail on them nor
//! report them again.

pub(crate) mod scalars;
pub(crate) mod valid;

use self::valid::{Valid, ValidMap};
use crate::file::SHAPES;
use crate::file::keys::{Key, Kind, Shape};
use crate::problem::suggest::nearest;
use crate::problem::{Checked, Problems, quote, quote_all};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Entry, MERGE_KEY, Node, Value};
use crate::yaml::scalar::{Scalar, ScalarKind};

/// Validates `node` against `shape` and returns its valid parts.
pub(crate) fn validate<'n>(node: &'n Node, shape: &'static Shape, problems: &mut Problems) -> Checked<Valid<'n>> {
    KeyValue { node, key: shape.title }.map(shape, problems)
}

/// Validates an item of the list with this key. Returns its valid parts with their location.
pub(crate) fn validate_item<'n>(
    node: &'n Node,
    key: &'n str,
    kind: &'static Kind,
    problems: &mut Problems,
) -> Valid<'n> {
    item(node, KeyValue { node, key }.validate(kind, problems).ok())
}

// === impl KeyValue ===

impl<'n> KeyValue<'n> {
    pub(crate) fn validate(self, kind: &'static Kind, problems: &mut Problems) -> Checked<Valid<'n>> {
        if self.node.is_invalid() {
            return Err(problems.reported(self.node.location));
        }
        if self.node.is_null() {
            return Err(self.report("has no value", "give it one, or leave the key out", problems));
        }
        if let (Some(texts), Kind::Text | Kind::Address | Kind::Secret) = (self.node.secrets(), kind) {
            problems.add_secrets(texts);
        }
        match kind {
            Kind::Text => Ok(self.text(problems)?.into()),
            Kind::Address | Kind::Statuses => Ok(self.text_or_number(problems)?.into()),
            Kind::Secret => Ok(self.secret(problems)?.into()),
            Kind::Name => Ok(self.name(problems)?.into()),
            Kind::Prefix => Ok(self.prefix(problems)?.into()),
            Kind::Word(words) => Ok(self.word(words, problems)?.into()),
            Kind::Flag => Ok(self.flag(problems)?.into()),
            Kind::Whole(min, max) => Ok(self.whole(*min, *max, problems)?.into()),
            Kind::Share => Ok(self.share(problems)?.into()),
            Kind::Duration(min, max) => Ok(self.duration(*min, *max, problems)?.into()),
            Kind::Size(min, max) => Ok(self.size(*min, *max, problems)?.into()),
            Kind::Interval(min, max) => Ok(self.interval(*min, *max, problems)?.into()),
            Kind::Map(shape) => self.map(shape, problems),
            Kind::Short(key, shape) => self.short(key, shape, problems),
            Kind::List(kind) => self.list(kind, problems),
            Kind::Many(kind) => self.many(kind, problems),
            Kind::OneOrMany(kind) => match &self.node.value {
                Value::List(_) => self.many(kind, problems),
                Value::Scalar(_) | Value::Map(_) => Ok(self.items(kind, problems)),
            },
            Kind::Named(kind) => self.names(kind, problems),
            Kind::Fields => self.pairs("names of header fields", |_| &Kind::Text, problems),
            Kind::Conditions(one, many) => {
                let kind = |entry: &Entry| match &entry.value.value {
                    Value::List(_) => *many,
                    Value::Scalar(_) | Value::Map(_) => *one,
                };
                self.pairs("names", kind, problems)
            }
            Kind::OrMap(kind, shape) => match &self.node.value {
                Value::Map(_) => self.map(shape, problems),
                Value::Scalar(_) | Value::List(_) => self.validate(kind, problems),
            },
            Kind::Unsupported => Err(self.report("is not supported yet", "leave it out", problems)),
        }
    }

    fn map(self, shape: &'static Shape, problems: &mut Problems) -> Checked<Valid<'n>> {
        let Value::Map(entries) = &self.node.value else {
            let message = format!("{} must be a map, not {}", shape.title, describe(self.node));
            return Err(problems.add(self.node.location, message, self.describe_map(shape)));
        };
        let mut valid = Vec::with_capacity(entries.len());
        for entry in entries {
            let Entry { key, location, .. } = entry;
            match shape.key(key) {
                None if key == MERGE_KEY => problems.note_merged(self.node.location),
                None => {
                    problems.add(
                        *location,
                        format!("unknown key {} in {}", quote(key), shape.title),
                        suggest(key, shape),
                    );
                    if let Some(near) = nearest_key(key, shape) {
                        problems.note_misspelt(self.node.location, near);
                    }
                }
                Some(Key { kind: Kind::Unsupported, .. }) => {
                    problems.add(*location, format!("{} is not supported yet", quote(key)), "leave it out");
                }
                Some(Key { name, kind, .. }) => {
                    valid.push((*name, validate_entry(entry, name, kind, problems)));
                }
            }
        }
        for (key, example) in shape.required_keys().filter(|(key, _)| !self.node.has(key)) {
            let message = format!("{} needs {}", shape.title, quote(key));
            problems.add_missing(self.node.location, key, message, format!("for example {}", quote(example)));
        }
        Ok(Valid::Map(Box::new(ValidMap { location: self.node.location, shape, entries: valid })))
    }

    /// Shows how to write a map with this shape instead of another value: its required keys, and the list of known keys.
    fn describe_map(self, shape: &'static Shape) -> String {
        let (examples, keys): (Vec<_>, _) =
            (shape.required_keys().map(|(_, example)| example).collect(), list_keys(shape));
        match &self.node.value {
            _ if !examples.is_empty() => format!("for example `{{ {} }}`; {keys}", examples.join(", ")),
            Value::Scalar(Scalar { kind: ScalarKind::Bool, text, .. }) if text == "true" && self.key == "authorize" => {
                format!("write {} for its defaults; {keys}", quote(&format!("{}: {{}}", self.key)))
            }
            _ => keys,
        }
    }

    fn short(self, key: &'static str, shape: &'static Shape, problems: &mut Problems) -> Checked<Valid<'n>> {
        let kind = shape.key(key).map(|key| &key.kind);
        match (&self.node.value, kind) {
            (Value::Scalar(_), Some(kind)) => {
                let value = self.validate(kind, problems)?;
                let location = self.node.location;
                let entries = vec![(key, item(self.node, Some(value)))];
                Ok(Valid::Map(Box::new(ValidMap { location, shape, entries })))
            }
            _ => self.map(shape, problems),
        }
    }

    fn list(self, kind: &'static Kind, problems: &mut Problems) -> Checked<Valid<'n>> {
        match &self.node.value {
            Value::List(_) => Ok(self.items(kind, problems)),
            Value::Scalar(_) | Value::Map(_) => {
                let help = "write `[one, another]`, or a line with `- ` for each";
                Err(self.report(&format!("must be a list, not {}", describe(self.node)), help, problems))
            }
        }
    }

    fn many(self, kind: &'static Kind, problems: &mut Problems) -> Checked<Valid<'n>> {
        match &self.node.value {
            Value::List(items) if items.is_empty() => {
                Err(self.report("must not be an empty list", "give it at least one entry", problems))
            }
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => self.list(kind, problems),
        }
    }

    fn items(self, kind: &'static Kind, problems: &mut Problems) -> Valid<'n> {
        let validate = |node| validate_item(node, self.key, kind, problems);
        Valid::List(self.node.items().iter().map(validate).collect())
    }

    /// Returns all entries, also those with invalid names: references to them must not be reported as unknown.
    fn names(self, kind: &'static Kind, problems: &mut Problems) -> Checked<Valid<'n>> {
        let mut valid = Vec::new();
        for entry in self.entries("names", problems)?.iter().filter(|entry| entry.key != MERGE_KEY) {
            if !scalars::is_name(&entry.key) {
                problems.add(entry.location, format!("{} is not a name", quote(&entry.key)), scalars::NAME_HELP);
            }
            valid.push((entry.key.as_str(), validate_entry(entry, &entry.key, kind, problems)));
        }
        Ok(Valid::Names(valid))
    }

    /// Returns pairs of a name and a value, in the order of the file.
    fn pairs(self, names: &str, kind: impl Fn(&Entry) -> &'static Kind, problems: &mut Problems) -> Checked<Valid<'n>> {
        let entries = self.entries(names, problems)?;
        let entries = entries.iter().filter(|entry| entry.key != MERGE_KEY);
        let pair = |entry: &'n Entry| {
            let value = validate_entry(entry, &entry.key, kind(entry), problems);
            Valid::Pair(Box::new((entry.key.as_str(), value)))
        };
        Ok(Valid::List(entries.map(pair).collect()))
    }

    fn entries(self, names: &str, problems: &mut Problems) -> Checked<&'n [Entry]> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries),
            Value::Scalar(_) | Value::List(_) => {
                let message = format!("must be a map, not {}", describe(self.node));
                Err(self.report(&message, format!("write `{{ NAME: VALUE }}`, with {names}"), problems))
            }
        }
    }
}

/// Validates the value of a key. Returns the value with its location.
fn validate_entry<'n>(entry: &'n Entry, key: &'n str, kind: &'static Kind, problems: &mut Problems) -> Valid<'n> {
    let value = KeyValue { node: &entry.value, key }.validate(kind, problems).ok();
    Valid::located(entry.value.location, Some(entry.location), value)
}

/// Returns an item of a list with its location.
fn item<'n>(node: &Node, value: Option<Valid<'n>>) -> Valid<'n> {
    Valid::located(node.location, Some(node.location), value)
}

/// Returns `true` for a key of the rule file, or one of the words that a key takes.
pub(crate) fn is_fixed_word(text: &str) -> bool {
    let has_word = |kind: &Kind| kind.words().iter().any(|word| word.name == text);
    SHAPES.iter().flat_map(|shape| shape.keys()).any(|key| key.name == text || has_word(&key.kind))
        || matches!(text, "true" | "false")
}

/// Returns the key of this shape that is most similar to `key`.
fn nearest_key(key: &str, shape: &'static Shape) -> Option<&'static str> {
    nearest(key, shape.keys().map(|key| key.name))
}

/// Returns the help for an unknown key: a similar key, the map that the key belongs to, or the list of known keys.
fn suggest(key: &str, shape: &'static Shape) -> String {
    if let Some(near) = nearest_key(key, shape) {
        return format!("did you mean {}?", quote(near));
    }
    let near = || SHAPES.iter().filter(|other| other.contains(shape) || shape.contains(other));
    if let Some(other) = near().find(|other| other.key(key).is_some()) {
        return format!("{} is a key of {}: check the indentation", quote(key), other.title);
    }
    let similar = similar(key, near());
    if similar.is_empty() { list_keys(shape) } else { format!("there are {similar}") }
}

/// Lists the keys of these maps that end with this word, such as `idle_timeout` for `timeout`.
fn similar<'s>(word: &str, shapes: impl Iterator<Item = &'s &'static Shape>) -> String {
    let ends = |name: &str| name.strip_suffix(word).is_some_and(|rest| rest.ends_with('_'));
    let keys_of = |shape: &&'static Shape| {
        let keys: Vec<_> = shape.keys().map(|key| key.name).filter(|name| ends(name)).collect();
        (!keys.is_empty()).then(|| format!("{} in {}", quote_all(keys), shape.title))
    };
    shapes.filter_map(keys_of).collect::<Vec<_>>().join("; ")
}

fn list_keys(shape: &'static Shape) -> String {
    let supported = shape.keys().filter(|key| !matches!(key.kind, Kind::Unsupported));
    format!("the keys of {} are {}", shape.title, quote_all(supported.map(|key| key.name)))
}
