//! Holds a tree against the table of [`keys`](super::keys): the maps and lists, and which keys they have.
//!
//! What is right goes on, as the values that serde fills [`file`](super::file) from; what is wrong is reported here and
//! left out, so that no later step trips over it or reports it again.

use serde_yaml::{Mapping, Value as Yaml};

use super::file::SHAPES;
use super::item::{Item, describe};
use super::keys::{Key, Kind, Shape};
use super::node::{Entry, MERGE_KEY, Node, Value};
use super::problem::{Broken, Problems, quote, quote_all};
use super::suggest::nearest;
use super::word;

/// The part of a value that is right.
pub(super) type Filled = Result<Yaml, Broken>;

/// The part of `node` that has the shape.
pub(crate) fn fill(node: &Node, shape: &'static Shape, problems: &mut Problems) -> Filled {
    Item { node, key: shape.what }.map(shape, problems)
}

// === impl Item ===

impl<'n> Item<'n> {
    pub(super) fn fill(self, kind: &'static Kind, problems: &mut Problems) -> Filled {
        if matches!(&self.node.value, Value::Scalar(scalar) if scalar.is_null()) {
            return Err(self.wrong("has no value", "give it one, or leave the key out", problems));
        }
        match kind {
            Kind::Text => Ok(self.text(problems)?.into()),
            Kind::Address => Ok(self.text_or_number(problems)?.into()),
            Kind::Secret => Ok(self.secret(problems)?.into()),
            Kind::Name => Ok(self.name(problems)?.into()),
            Kind::Word(words) => Ok(self.word(words.built, words.unbuilt, problems)?.into()),
            Kind::Flag => Ok(self.flag(problems)?.into()),
            Kind::Whole(least, most) => Ok(self.whole(*least, *most, problems)?.into()),
            Kind::Duration(least, most) => Ok(self.duration(*least, *most, problems)?.into()),
            Kind::Size(least, most) => Ok(self.size(*least, *most, problems)?.into()),
            Kind::Interval(least, most) => Ok(self.interval(*least, *most, problems)?.into()),
            Kind::Map(shape) => self.map(shape, problems),
            Kind::Short(key, shape) => self.short(key, shape, problems),
            Kind::List(kind) => self.list(kind, problems),
            Kind::Many(kind) => self.many(kind, problems),
            Kind::OneOrMany(kind) => match &self.node.value {
                Value::List(_) => self.many(kind, problems),
                Value::Scalar(_) | Value::Map(_) => Ok(self.items(kind, problems)),
            },
            Kind::Named(kind) => self.names(kind, problems),
            Kind::Fields => self.fields(problems),
            Kind::OrMap(kind, shape) => match &self.node.value {
                Value::Map(_) => self.map(shape, problems),
                Value::Scalar(_) | Value::List(_) => self.fill(kind, problems),
            },
            Kind::Unbuilt => Err(self.wrong("is not built yet", "leave it out", problems)),
        }
    }

    fn map(self, shape: &'static Shape, problems: &mut Problems) -> Filled {
        let Value::Map(entries) = &self.node.value else {
            let message = format!("{} must be a map, not {}", shape.what, describe(self.node));
            return Err(problems.add(self.node.location, message, known(shape)));
        };
        let mut filled = Mapping::new();
        for Entry { key, location, value } in entries {
            match shape.key(key) {
                None if key == MERGE_KEY => {}
                None => {
                    problems.add(*location, format!("unknown key {} in {}", quote(key), shape.what), meant(key, shape));
                    if let Some(near) = near(key, shape) {
                        problems.misspelt(self.node.location, near);
                    }
                }
                Some(Key { kind: Kind::Unbuilt, .. }) => {
                    problems.add(*location, format!("{} is not built yet", quote(key)), "leave it out");
                }
                Some(Key { name, kind, .. }) => {
                    if let Ok(value) = (Item { node: value, key: name }).fill(kind, problems) {
                        filled.insert((*name).into(), value);
                    }
                }
            }
        }
        let has = |key| self.node.has(key) || self.node.has(MERGE_KEY);
        for (key, example) in shape.needs().filter(|(key, _)| !has(key)) {
            let message = format!("{} needs {}", shape.what, quote(key));
            problems.lacks(self.node.location, key, message, format!("for example {}", quote(example)));
        }
        Ok(filled.into())
    }

    fn short(self, key: &'static str, shape: &'static Shape, problems: &mut Problems) -> Filled {
        let kind = shape.key(key).map(|key| &key.kind);
        match (&self.node.value, kind) {
            (Value::Scalar(_), Some(kind)) => {
                let value = self.fill(kind, problems)?;
                Ok(Mapping::from_iter([(key.into(), value)]).into())
            }
            _ => self.map(shape, problems),
        }
    }

    fn list(self, kind: &'static Kind, problems: &mut Problems) -> Filled {
        match &self.node.value {
            Value::List(_) => Ok(self.items(kind, problems)),
            Value::Scalar(_) | Value::Map(_) => {
                let help = "write `[one, another]`, or a line with `- ` for each";
                Err(self.wrong(&format!("must be a list, not {}", describe(self.node)), help, problems))
            }
        }
    }

    fn many(self, kind: &'static Kind, problems: &mut Problems) -> Filled {
        match &self.node.value {
            Value::List(items) if items.is_empty() => {
                Err(self.wrong("must not be an empty list", "give it at least one entry", problems))
            }
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => self.list(kind, problems),
        }
    }

    /// Every item keeps its position: a broken one is null.
    fn items(self, kind: &'static Kind, problems: &mut Problems) -> Yaml {
        let mut filled = Vec::with_capacity(self.node.items().len());
        for node in self.node.items() {
            filled.push(Item { node, key: self.key }.fill(kind, problems).unwrap_or(Yaml::Null));
        }
        Yaml::Sequence(filled)
    }

    /// Every entry keeps its name, even a wrong one, so that those who use it are not told that it is unknown.
    fn names(self, kind: &'static Kind, problems: &mut Problems) -> Filled {
        let mut filled = Mapping::new();
        for Entry { key, location, value } in
            self.entries("names", problems)?.iter().filter(|entry| entry.key != MERGE_KEY)
        {
            if !word::is_name(key) {
                problems.add(*location, format!("{} is not a name", quote(key)), word::NAME_HELP);
            }
            let value = Item { node: value, key }.fill(kind, problems).unwrap_or(Yaml::Null);
            filled.insert(key.as_str().into(), value);
        }
        Ok(filled.into())
    }

    fn fields(self, problems: &mut Problems) -> Filled {
        let mut filled = Mapping::new();
        let entries = self.entries("names of header fields", problems)?;
        for Entry { key, value, .. } in entries.iter().filter(|entry| entry.key != MERGE_KEY) {
            let value = Item { node: value, key }.fill(&Kind::Text, problems).unwrap_or(Yaml::Null);
            filled.insert(key.as_str().into(), value);
        }
        Ok(filled.into())
    }

    fn entries(self, names: &str, problems: &mut Problems) -> Result<&'n [Entry], Broken> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries),
            Value::Scalar(_) | Value::List(_) => {
                let message = format!("must be a map, not {}", describe(self.node));
                Err(self.wrong(&message, format!("it maps {names} to what they stand for"), problems))
            }
        }
    }
}

/// The key of this shape that was probably meant.
fn near(key: &str, shape: &'static Shape) -> Option<&'static str> {
    nearest(key, shape.keys().map(|key| key.name))
}

/// What somebody may have meant by a key that is not of this shape.
fn meant(key: &str, shape: &'static Shape) -> String {
    if let Some(near) = near(key, shape) {
        return format!("did you mean {}?", quote(near));
    }
    let is_near = |other: &Shape| other.contains(shape) || shape.contains(other);
    if let Some(other) = SHAPES.iter().find(|other| other.key(key).is_some() && is_near(other)) {
        return format!("{} is a key of {}: check the indentation", quote(key), other.what);
    }
    let similar = similar(key);
    if similar.is_empty() { known(shape) } else { format!("there are {similar}") }
}

/// The keys of all maps that end with this word, as in `response_timeout` for `timeout`.
fn similar(word: &str) -> String {
    let ends = |name: &str| name.strip_suffix(word).is_some_and(|rest| rest.ends_with('_'));
    let keys_of = |shape: &&'static Shape| {
        let keys: Vec<_> = shape.keys().map(|key| key.name).filter(|name| ends(name)).collect();
        (!keys.is_empty()).then(|| format!("{} in {}", quote_all(keys), shape.what))
    };
    SHAPES.iter().filter_map(keys_of).collect::<Vec<_>>().join("; ")
}

fn known(shape: &'static Shape) -> String {
    let built = shape.keys().filter(|key| !matches!(key.kind, Kind::Unbuilt));
    format!("the keys of {} are {}", shape.what, quote_all(built.map(|key| key.name)))
}
