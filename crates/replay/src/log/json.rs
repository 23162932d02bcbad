//! Parses lines of JSON with a [`Mapping`], in one pass and without a tree of values.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::LoggedRequest;
use super::mapping::{Field, Fields, Found, Mapping};
use super::values::{Scalar, Values};
use tidegate_layer::recording::RecordedIdentity;

/// The value that Caddy logs instead of a credential.
const REDACTED: &str = "REDACTED";

/// Parses a line. Returns `None` if it is no object, or lacks the time or the request.
pub(super) fn parse<'l>(line: &'l str, mapping: &Mapping) -> Option<LoggedRequest<'l>> {
    if !line.starts_with('{') {
        return None;
    }
    match read(line, mapping) {
        Ok(values) => values.into_request(),
        // nginx without `escape=json` writes escapes that JSON does not have.
        Err(_) if line.contains("\\x") => {
            let line = line.replace("\\x", "\\u00");
            read(&line, mapping).ok()?.into_request().map(LoggedRequest::into_owned)
        }
        Err(_) => None,
    }
}

fn read<'l>(line: &'l str, mapping: &Mapping) -> serde_json::Result<Values<'l>> {
    let (mut values, mut json) = (Values::default(), serde_json::Deserializer::from_str(line));
    Object { fields: &mapping.fields, values: &mut values }.deserialize(&mut json)?;
    json.end()?;
    Ok(values)
}

/// Reads the fields of an object.
struct Object<'m, 'v, 'l> {
    fields: &'m Fields,
    values: &'v mut Values<'l>,
}

/// Reads the value of a field.
struct Value<'m, 'v, 'l> {
    slot: Slot<'m, 'l>,
    values: &'v mut Values<'l>,
}

/// The destination of a value.
#[derive(Clone)]
enum Slot<'m, 'l> {
    Field(&'m Field),
    /// A header field with this name.
    Header(Cow<'l, str>),
}

/// Reads the name of a field.
struct Name;

impl<'l> Value<'_, '_, 'l> {
    fn set<E>(self, value: Scalar<'l>) -> Result<(), E> {
        match self.slot {
            Slot::Field(field) => {
                for (part, rank) in &field.parts {
                    self.values.set(part, *rank, value.clone());
                }
            }
            Slot::Header(name) => {
                let value = value.text().filter(|value| value != REDACTED);
                self.values.add_header(name, value);
            }
        }
        Ok(())
    }
}

impl<'l> DeserializeSeed<'l> for Object<'_, '_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'l> Visitor<'l> for Object<'_, '_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name)? {
            let slot = match self.fields.find(&name) {
                Some(Found::Field(field)) => Slot::Field(field),
                Some(Found::Header(header)) => Slot::Header(header.replace('_', "-").into()),
                None => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            map.next_value_seed(Value { slot, values: &mut *self.values })?;
        }
        Ok(())
    }
}

impl<'l> DeserializeSeed<'l> for Value<'_, '_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Value<'_, '_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<(), E> {
        self.set(Scalar::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.set(Scalar::Text(text.to_owned().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.set(Scalar::Integer(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.set(Scalar::Float(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    /// A header field has all values of an array, another field has the first.
    fn visit_seq<A: SeqAccess<'l>>(self, mut values: A) -> Result<(), A::Error> {
        loop {
            if values.next_element_seed(Value { slot: self.slot.clone(), values: &mut *self.values })?.is_none() {
                return Ok(());
            }
            if let Slot::Field(_) = self.slot {
                while values.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        match self.slot {
            Slot::Field(field) if field.has_identity => {
                let identity = RecordedIdentity::deserialize(MapAccessDeserializer::new(map))?;
                self.values.identity = Some(Box::new(identity));
                Ok(())
            }
            Slot::Field(field) if field.has_headers => {
                while let Some(name) = map.next_key_seed(Name)? {
                    map.next_value_seed(Value { slot: Slot::Header(name), values: &mut *self.values })?;
                }
                Ok(())
            }
            Slot::Field(field) => Object { fields: &field.inner, values: self.values }.visit_map(map),
            Slot::Header(_) => IgnoredAny.visit_map(map).map(|_| ()),
        }
    }
}

impl<'l> DeserializeSeed<'l> for Name {
    type Value = Cow<'l, str>;

    fn deserialize<D: Deserializer<'l>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'l> Visitor<'l> for Name {
    type Value = Cow<'l, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'l str) -> Result<Self::Value, E> {
        Ok(name.into())
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(name.to_owned().into())
    }
}
