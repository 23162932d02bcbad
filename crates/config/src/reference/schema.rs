//! Generates the JSON Schema (draft 7) of the rule file from the descriptions of the keys, for editors.
//!
//! The schema checks keys, types, words and the ranges of numbers. `check` also checks what a schema cannot express, such
//! as the ranges of durations. A value with a placeholder is valid for each key.

use serde_json::{Map, Value, json};

use crate::file::SHAPES;
use crate::file::keys::{Key, Kind, NONE, Presence, Shape};
use crate::values::units::{Bytes, Millis};
use tidegate_limit::calendar::Unit;
use tidegate_limit::text::words::Word;

/// Whole numbers with units in descending order, at least one.
const DURATION: &str = "^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";

const SIZE: &str = "^[0-9]+(B|KiB|MiB|GiB)$";

const NAME: &str = "^[A-Za-z0-9._-]{1,64}$";

const PREFIX: &str = "^[A-Za-z0-9._:-]{1,64}$";

/// The places in the schema of a limit that is a map in the list of a route or of `defaults`.
const LIMITS_OF_ROUTES: [&str; 2] = [
    "/definitions/route/properties/limits/anyOf/0/items/anyOf/1",
    "/definitions/defaults/properties/limits/anyOf/0/items/anyOf/1",
];

/// Returns the schema of the rule file.
pub fn schema() -> Value {
    let [file, shapes @ ..] = &SHAPES;
    let definitions: Map<_, _> = shapes.iter().map(|shape| (name_of(shape), object(shape))).collect();
    let mut schema = object(file);
    if let Value::Object(schema) = &mut schema {
        // Included files may have all routes, and an included file only upstreams.
        schema.remove("required");
        schema.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        schema.insert("title".into(), "Tidegate rule file".into());
        let alternatives = ["routes", "include", "upstreams", "service"].map(|key| json!({ "required": [key] }));
        schema.insert("anyOf".into(), json!(alternatives));
        schema.insert("definitions".into(), Value::Object(definitions));
    }
    for place in LIMITS_OF_ROUTES {
        if let Some(limit) = schema.pointer_mut(place) {
            // The name of a shared limit is its key.
            *limit = json!({ "allOf": [limit.take(), { "required": ["name"] }] });
        }
    }
    schema
}

fn object(shape: &Shape) -> Value {
    let keys = || shape.keys().filter(|key| !matches!(key.kind, Kind::Unsupported));
    let properties: Map<_, _> = keys().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> = shape.required_keys().map(|(key, _)| key).collect();
    json!({
        "description": shape.description.trim(),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &Key) -> Value {
    let mut schema = value(&key.kind);
    if schema.get("$ref").is_some() {
        // Draft 7 ignores all keywords next to a reference.
        schema = json!({ "allOf": [schema] });
    }
    if let Value::Object(schema) = &mut schema {
        let range = range(&key.kind).map(|range| format!(" From {range}.")).unwrap_or_default();
        schema.insert("description".into(), format!("{}{range}", key.description.trim()).into());
        if let Presence::Default(default) = key.presence {
            // The reference shows some texts without the quotes that YAML needs.
            let parsed: Option<Value> = serde_yaml::from_str(default).ok();
            let is_text = matches!(key.kind, Kind::Word(_));
            schema.insert("default".into(), parsed.filter(|_| !is_text).unwrap_or_else(|| default.into()));
        }
    }
    schema
}

/// Describes the range of a value other than a number.
fn range(kind: &Kind) -> Option<String> {
    match kind {
        Kind::Duration(min, max) | Kind::Interval(min, max) => {
            Some(format!("{} to {}", Millis::show(*min), Millis::show(*max)))
        }
        Kind::Size(min, max) => Some(format!("{} to {}", Bytes::show(*min), Bytes::show(*max))),
        Kind::OrNone(kind) => range(kind),
        _ => None,
    }
}

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Secret | Kind::Label => json!({ "type": "string", "pattern": "\\S" }),
        Kind::Form(pattern) => or_placeholder(&json!({ "type": "string", "pattern": pattern })),
        Kind::Address => json!({ "type": ["string", "number"] }),
        Kind::Scalar => json!({ "type": ["string", "integer", "boolean"] }),
        Kind::Statuses => json!({ "type": ["string", "number"] }),
        Kind::Name => or_placeholder(&json!({ "type": "string", "pattern": NAME })),
        Kind::Prefix => or_placeholder(&json!({ "type": "string", "pattern": PREFIX })),
        Kind::Word(words) => or_placeholder(&json!({ "enum": names(words) })),
        Kind::Flag => or_placeholder(&json!({ "type": "boolean" })),
        Kind::Integer(min, max) => or_placeholder(&json!({ "type": "integer", "minimum": min, "maximum": max })),
        Kind::Duration(..) => or_placeholder(&json!({ "type": "string", "pattern": DURATION })),
        Kind::Decimal(max) => or_placeholder(&json!({ "type": "number", "minimum": 0, "maximum": max })),
        Kind::Size(..) => or_placeholder(&json!({ "type": "string", "pattern": SIZE })),
        Kind::Interval(..) => json!({ "anyOf": [
            { "enum": names(Unit::WORDS) }, { "type": "string", "pattern": DURATION }, placeholder(),
        ] }),
        Kind::Map(shape) => reference(shape),
        Kind::Short(key, shape) => {
            let short = shape.key(key).map_or_else(|| json!({ "type": "string" }), |key| value(&key.kind));
            json!({ "anyOf": [short, reference(shape)] })
        }
        Kind::List(kind) => json!({ "type": "array", "items": value(kind) }),
        Kind::Many(kind) => json!({ "type": "array", "items": value(kind), "minItems": 1 }),
        Kind::OneOrMany(kind) => json!({ "anyOf": [value(kind), value(&Kind::Many(kind))] }),
        Kind::Named(kind) => {
            json!({ "type": "object", "propertyNames": { "pattern": NAME }, "additionalProperties": value(kind) })
        }
        Kind::Fields => json!({ "type": "object", "additionalProperties": value(&Kind::Text) }),
        Kind::Entries(kind) => json!({ "type": "object", "additionalProperties": value(kind) }),
        Kind::Conditions(single, list) => {
            json!({ "type": "object", "additionalProperties": { "anyOf": [value(single), value(list)] } })
        }
        Kind::OrNone(kind) => json!({ "anyOf": [value(kind), { "const": NONE }] }),
        Kind::OrMap(kind, shape) => json!({ "anyOf": [value(kind), reference(shape)] }),
        Kind::Unsupported => Value::Bool(false),
    }
}

fn names(words: &[Word]) -> Vec<&'static str> {
    words.iter().map(|word| word.name).collect()
}

fn or_placeholder(schema: &Value) -> Value {
    json!({ "anyOf": [schema, placeholder()] })
}

fn placeholder() -> Value {
    json!({ "type": "string", "pattern": "\\$\\{.+\\}" })
}

fn reference(shape: &Shape) -> Value {
    json!({ "$ref": format!("#/definitions/{}", name_of(shape)) })
}

/// Returns the name of a shape as a word, such as `entry_of_listen`.
fn name_of(shape: &Shape) -> String {
    let title = shape.title.replace('`', "").replace([' ', '.'], "_");
    title.trim_start_matches("the_").trim_start_matches("an_").trim_start_matches("a_").to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn limits_of_routes_need_a_name() {
        let schema = schema();
        for place in LIMITS_OF_ROUTES {
            let limit = schema.pointer(place).unwrap();
            assert_eq!(limit, &json!({ "allOf": [{ "$ref": "#/definitions/limit" }, { "required": ["name"] }] }));
        }
    }

    #[test]
    fn shapes_have_different_names() {
        let names: BTreeSet<_> = SHAPES.iter().map(|shape| name_of(shape)).collect();
        assert_eq!(names.len(), SHAPES.len(), "{names:?}");
        assert!(names.contains("entry_of_listen") && names.contains("limit"), "{names:?}");
    }
}
