//! The `metadata` of a descriptor: any map, which becomes a part of the dynamic metadata of answers.

use std::sync::Arc;

use serde_json::{Number, Value as Json};

use super::map::Map;
use crate::problem::{Checked, Problems};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Node, Value};
use crate::yaml::scalar::ScalarKind;
use tidegate_service::Metadata;

/// Reads the metadata of a descriptor. Returns `None` without metadata.
pub(super) fn read_metadata(descriptor: Map<'_>, problems: &mut Problems) -> Checked<Option<Arc<Metadata>>> {
    let Some(node) = descriptor.get("metadata") else { return Ok(None) };
    match json(node, problems)? {
        Json::Object(metadata) => Ok(Some(metadata).filter(|metadata| !metadata.is_empty()).map(Arc::new)),
        _ => {
            let fault = format!("is a map, not {}", describe(node));
            Err(KeyValue { node, key: "metadata" }.report(&fault, "write keys and their values", problems))
        }
    }
}

fn json(node: &Node, problems: &mut Problems) -> Checked<Json> {
    match &node.value {
        Value::Scalar(scalar) => Ok(match scalar.kind {
            ScalarKind::Null | ScalarKind::Invalid => Json::Null,
            ScalarKind::Bool => Json::Bool(scalar.text.eq_ignore_ascii_case("true")),
            ScalarKind::Int(number) => number.into(),
            ScalarKind::Float => {
                let number = scalar.text.parse().ok().and_then(Number::from_f64);
                let message = "a number in `metadata` must be finite";
                number.map(Json::Number).ok_or_else(|| problems.add(node.location, message, "put it in quotes"))?
            }
            ScalarKind::Text => scalar.text.as_str().into(),
        }),
        Value::List(items) => items.iter().map(|item| json(item, problems)).collect::<Checked<_>>().map(Json::Array),
        Value::Map(entries) => {
            let entries = entries.iter().map(|entry| Ok((entry.key.clone(), json(&entry.value, problems)?)));
            entries.collect::<Checked<_>>().map(Json::Object)
        }
    }
}
