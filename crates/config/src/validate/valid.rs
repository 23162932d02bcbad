//! The valid values of a rule file with their locations, from which serde creates the structs of [`file`](crate::file).
//!
//! Texts are borrowed from the tree, and the keys that a map lacks exist only while serde reads the map: most maps lack
//! most of their keys.

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use crate::file::keys::{Key, Kind, Shape};
use crate::problem::Location;

/// A valid value, or a part of one.
pub(crate) enum Valid<'n> {
    /// No value, since the key is absent or its value is invalid.
    None,
    Text(&'n str),
    Flag(bool),
    Whole(u64),
    Share(f64),
    List(Vec<Valid<'n>>),
    /// A name and its value.
    Pair(Box<(&'n str, Valid<'n>)>),
    /// A map with fixed keys.
    Map(Box<ValidMap<'n>>),
    /// A map from names.
    Names(Vec<(&'n str, Valid<'n>)>),
    /// A value with its location.
    Located(Box<LocatedValue<'n>>),
    Location(Location),
}

/// A map with fixed keys.
pub(crate) struct ValidMap<'n> {
    pub(crate) location: Location,
    pub(crate) shape: &'static Shape,
    pub(crate) entries: Vec<(&'static str, Valid<'n>)>,
}

/// The fields of [`Located`](crate::file::located::Located).
pub(crate) struct LocatedValue<'n> {
    location: Location,
    key: Option<Location>,
    value: Valid<'n>,
}

/// The entries of a map, followed by the keys of its shape that the map lacks.
struct Entries<'n> {
    entries: std::vec::IntoIter<(&'static str, Valid<'n>)>,
    absent: std::vec::IntoIter<&'static str>,
    location: Location,
    value: Valid<'n>,
}

// === impl Valid ===

impl<'n> Valid<'n> {
    /// Creates the value of a key at this location. An invalid value is `None`.
    pub(crate) fn located(location: Location, key: Option<Location>, value: Option<Self>) -> Self {
        Self::Located(Box::new(LocatedValue { location, key, value: value.unwrap_or(Self::None) }))
    }

    /// Converts the value to a struct. An error is a bug: validated values fit the fields.
    pub(crate) fn into_struct<T: Deserialize<'n>>(self) -> Option<T> {
        T::deserialize(self).ok()
    }
}

impl<'n> From<&'n str> for Valid<'n> {
    fn from(text: &'n str) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Valid<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for Valid<'_> {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Valid<'_> {
    fn from(share: f64) -> Self {
        Self::Share(share)
    }
}

impl<'de> Deserializer<'de> for Valid<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::None => visitor.visit_unit(),
            Self::Text(text) => visitor.visit_borrowed_str(text),
            Self::Flag(flag) => visitor.visit_bool(flag),
            Self::Whole(number) => visitor.visit_u64(number),
            Self::Share(share) => visitor.visit_f64(share),
            Self::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Pair(pair) => {
                let (name, value) = *pair;
                visitor.visit_seq(SeqDeserializer::new([Self::Text(name), value].into_iter()))
            }
            Self::Map(map) => visitor.visit_map(Entries::new(*map)),
            Self::Names(entries) => visitor.visit_map(MapDeserializer::new(entries.into_iter())),
            Self::Located(located) => {
                let LocatedValue { location, key, value } = *located;
                let key = key.map_or(Self::None, Self::Location);
                let fields = [("location", Self::Location(location)), ("key", key), ("value", value)];
                visitor.visit_map(MapDeserializer::new(fields.into_iter()))
            }
            Self::Location(location) => {
                let number = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
                let (line, column) = (number(location.line()), number(location.column()));
                let fields = [("file", u64::from(location.file)), ("line", line), ("column", column)];
                visitor.visit_map(MapDeserializer::new(fields.into_iter()))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Self::None = self { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => text.into_deserializer().deserialize_enum(name, variants, visitor),
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'n> IntoDeserializer<'n> for Valid<'n> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

// === impl Entries ===

impl<'n> Entries<'n> {
    fn new(map: ValidMap<'n>) -> Self {
        let ValidMap { location, shape, entries } = map;
        let is_absent = |key: &&Key| {
            !matches!(key.kind, Kind::Unsupported) && entries.iter().all(|(present, _)| *present != key.name)
        };
        let absent: Vec<_> = shape.keys().filter(is_absent).map(|key| key.name).collect();
        Self { entries: entries.into_iter(), absent: absent.into_iter(), location, value: Valid::None }
    }
}

impl<'n> MapAccess<'n> for Entries<'n> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let absent = || Some((self.absent.next()?, Valid::located(self.location, None, None)));
        let Some((key, value)) = self.entries.next().or_else(absent) else { return Ok(None) };
        self.value = value;
        seed.deserialize(Valid::Text(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(std::mem::replace(&mut self.value, Valid::None))
    }
}
