//! Reads maps with fixed keys, and reports unknown and missing keys.

use super::FromYaml;
use crate::file::SHAPES;
use crate::file::keys::{Key, Kind, Shape, is_none};
use crate::file::located::Located;
use crate::problem::suggest::nearest;
use crate::problem::{Checked, Location, Problems, quote, quote_all};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Entry, MERGE_KEY, Value};
use crate::yaml::scalar::{Scalar, ScalarKind};

/// A struct with the values of a map.
pub(crate) trait FromMap {
    /// Reads the values, and reports all errors in them.
    fn from_map(map: &MapReader<'_>, problems: &mut Problems) -> Self;
}

/// A map with fixed keys, whose unknown and missing keys have been reported.
pub(crate) struct MapReader<'n> {
    shape: &'static Shape,
    location: Location,
    entries: &'n [Entry],
    /// The key and the value of a map in its short form.
    short: Option<(&'static str, KeyValue<'n>)>,
}

impl<T: FromMap> FromYaml for T {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        Ok(T::from_map(&value.map(kind, problems)?, problems))
    }
}

impl<T: FromMap> FromMap for Box<T> {
    fn from_map(map: &MapReader<'_>, problems: &mut Problems) -> Self {
        Self::new(T::from_map(map, problems))
    }
}

// === impl MapReader ===

impl<'n> MapReader<'n> {
    /// Reads the value of a key, which the map may lack.
    pub(crate) fn read<T: FromYaml>(&self, key: &str, problems: &mut Problems) -> Located<T> {
        match self.find(key) {
            Some((_, value, Kind::OrNone(_))) if is_none(value.node) => Located::new(self.location, None, None),
            Some((key, value, kind)) => Located::new(value.node.location, Some(key), value.read(kind, problems).ok()),
            None => Located::new(self.location, None, None),
        }
    }

    /// Returns the location, the value and the kind of a key.
    fn find(&self, key: &str) -> Option<(Location, KeyValue<'n>, &'static Kind)> {
        let (location, value) = match self.entries.iter().find(|entry| entry.key == key) {
            Some(entry) => (entry.location, KeyValue { node: &entry.value, key: &entry.key }),
            None => self.short.filter(|(short, _)| *short == key).map(|(_, value)| (value.node.location, value))?,
        };
        Some((location, value, &self.shape.key(key)?.kind))
    }
}

// === impl KeyValue ===

impl<'n> KeyValue<'n> {
    /// Returns a reader of this map, whose kind is one of a map.
    fn map(self, kind: &'static Kind, problems: &mut Problems) -> Checked<MapReader<'n>> {
        let (shape, short) = match kind {
            Kind::Map(shape) | Kind::OrMap(_, shape) => (*shape, None),
            Kind::Short(key, shape) => (*shape, Some((*key, self))),
            _ => return Err(self.mismatch(problems)),
        };
        let location = self.node.location;
        match (&self.node.value, short) {
            (Value::Map(entries), _) => {
                check_keys(entries, location, shape, problems);
                Ok(MapReader { shape, location, entries, short: None })
            }
            (Value::Scalar(_), Some(_)) => Ok(MapReader { shape, location, entries: &[], short }),
            _ => {
                let message = format!("{} must be a map, not {}", shape.title, describe(self.node));
                Err(problems.add(location, message, self.describe_map(shape)))
            }
        }
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
}

/// Reports the unknown and missing keys of the map at this location.
fn check_keys(entries: &[Entry], at: Location, shape: &'static Shape, problems: &mut Problems) {
    for Entry { key, location, .. } in entries {
        match shape.key(key) {
            None if key == MERGE_KEY => problems.note_merged(at),
            None => {
                let message = format!("unknown key {} in {}", quote(key), shape.title);
                problems.add(*location, message, suggest(key, shape));
                if let Some(near) = nearest_key(key, shape) {
                    problems.note_misspelt(at, near);
                }
            }
            Some(Key { kind: Kind::Unsupported, .. }) => {
                problems.add(*location, format!("{} is not supported yet", quote(key)), "leave it out");
            }
            Some(_) => {}
        }
    }
    for (key, example) in shape.required_keys().filter(|(key, _)| entries.iter().all(|entry| entry.key != *key)) {
        let message = format!("{} needs {}", shape.title, quote(key));
        problems.add_missing(at, key, message, format!("for example {}", quote(example)));
    }
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
