//! JSON objects as messages (google/protobuf/struct.proto), in answers and in configurations of a control plane.

use std::collections::BTreeMap;

use tidegate_service::Metadata;

/// An object.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Value {
    /// A value without a kind is null.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Kind {
    /// The only number is 0.
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Object(Struct),
    #[prost(message, tag = "6")]
    List(List),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct List {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<Value>,
}

impl From<Metadata> for Struct {
    fn from(metadata: Metadata) -> Self {
        Self { fields: metadata.into_iter().map(|(key, value)| (key, value.into())).collect() }
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        let kind = match value {
            serde_json::Value::Null => Kind::Null(0),
            serde_json::Value::Bool(value) => Kind::Bool(value),
            serde_json::Value::Number(number) => Kind::Number(number.as_f64().unwrap_or_default()),
            serde_json::Value::String(text) => Kind::Text(text),
            serde_json::Value::Array(values) => {
                Kind::List(List { values: values.into_iter().map(Into::into).collect() })
            }
            serde_json::Value::Object(object) => Kind::Object(object.into()),
        };
        Self { kind: Some(kind) }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_value_has_its_field() {
        let encoded = |value: serde_json::Value| Value::from(value).encode_to_vec();
        assert_eq!(encoded(json!(null)), b"\x08\x00");
        assert_eq!(encoded(json!(2)), [&b"\x11"[..], &2_f64.to_le_bytes()].concat());
        assert_eq!(encoded(json!("a")), b"\x1a\x01a");
        assert_eq!(encoded(json!(false)), b"\x20\x00");
        assert_eq!(encoded(json!({ "a": true })), b"\x2a\x09\x0a\x07\x0a\x01a\x12\x02\x20\x01");
        assert_eq!(encoded(json!([[], "b"])), b"\x32\x09\x0a\x02\x32\x00\x0a\x03\x1a\x01b");
    }
}
