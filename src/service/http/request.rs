//! Reads the call from a `RateLimitRequest` in JSON (protobuf.dev/programming-guides/json). The names of fields are in
//! `lowerCamelCase` or as in the Protocol Buffers. Unknown fields are errors, as in envoyproxy/ratelimit.

use serde::Deserialize;

use crate::service::bad_call::BadCall;
use crate::service::lists::{AtMost, Number};
use crate::service::unit;
use tidegate_service::{Call, Override};

/// A `RateLimitRequest`. `null` has the same meaning as an absent field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Request {
    domain: Option<String>,
    descriptors: Option<AtMost<Descriptor, { Call::MAX_DESCRIPTORS }>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Descriptor {
    entries: Option<AtMost<Entry, { Call::MAX_ENTRIES }>>,
    limit: Option<Limit>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Number>,
    unit: Option<UnitName>,
}

/// A unit by its name or its number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum UnitName {
    Name(String),
    Number(i32),
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// The body is no such JSON, or a list is too long.
    pub(super) fn read(body: &[u8]) -> Result<Self, BadCall> {
        serde_json::from_slice(body).map_err(|error| BadCall::Json(place(&error)))
    }

    /// Returns the call.
    ///
    /// # Errors
    /// A limit has no unit, or hits are negative.
    pub(super) fn call(&self) -> Result<Call<'_>, BadCall> {
        let descriptors = self.descriptors.iter().flat_map(|list| &list.0).map(Descriptor::read);
        Ok(Call {
            domain: self.domain.as_deref().unwrap_or_default(),
            descriptors: descriptors.collect::<Result<_, _>>()?,
            hits_addend: self.hits_addend.map_or(0, Number::saturated),
        })
    }
}

impl Descriptor {
    fn read(&self) -> Result<tidegate_service::Descriptor<'_>, BadCall> {
        if self.is_negative_hits == Some(true) {
            return Err(BadCall::NegativeHits);
        }
        Ok(tidegate_service::Descriptor {
            entries: self.entries.iter().flat_map(|list| &list.0).map(Entry::read).collect(),
            limit: self.limit.as_ref().map(Limit::read).transpose()?,
            hits_addend: self.hits_addend.map(|hits| hits.0),
        })
    }
}

impl Entry {
    fn read(&self) -> tidegate_service::Entry<'_> {
        let Self { key, value } = self;
        tidegate_service::Entry { key: key.as_deref().unwrap_or_default(), value: value.as_deref().unwrap_or_default() }
    }
}

impl Limit {
    fn read(&self) -> Result<Override, BadCall> {
        let unit = match &self.unit {
            Some(UnitName::Name(name)) => unit::named(name),
            Some(UnitName::Number(number)) => unit::numbered(*number),
            None => None,
        };
        let requests_per_unit = self.requests_per_unit.map_or(0, Number::saturated);
        Ok(Override { requests_per_unit, unit: unit.ok_or(BadCall::UnknownUnit)? })
    }
}

/// Returns the position of an error, without the text of the caller.
fn place(error: &serde_json::Error) -> String {
    let kind = if error.is_data() { "unexpected value" } else { "invalid JSON" };
    format!("{kind} at line {} column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use tidegate_service::Unit;

    use super::*;

    fn error(body: &str) -> String {
        let read = Request::read(body.as_bytes()).and_then(|request| request.call().map(|call| format!("{call:?}")));
        read.expect_err("an error").to_string()
    }

    #[test]
    fn both_spellings_of_fields_are_read() {
        for body in [
            r#"{"domain":"edge","hitsAddend":"3","descriptors":[{"entries":[{"key":"user","value":"ann"}],"hitsAddend":0,
                "limit":{"requestsPerUnit":7,"unit":"HOUR"}}]}"#,
            r#"{"domain":"edge","hits_addend":3,"descriptors":[{"entries":[{"key":"user","value":"ann"}],"hits_addend":"0",
                "limit":{"requests_per_unit":"7","unit":3},"isNegativeHits":false}]}"#,
        ] {
            let request = Request::read(body.as_bytes()).expect("a request");
            let call = request.call().expect("a call");
            let [descriptor] = &call.descriptors[..] else { panic!("{call:?}") };
            assert_eq!((call.domain, call.hits_addend, descriptor.hits_addend), ("edge", 3, Some(0)));
            assert_eq!(descriptor.entries, [tidegate_service::Entry { key: "user", value: "ann" }]);
            assert_eq!(descriptor.limit, Some(Override { requests_per_unit: 7, unit: Unit::HOUR }));
        }
    }

    #[test]
    fn null_is_an_absent_field() {
        let request = Request::read(br#"{"domain":null,"descriptors":[{"entries":[{"key":null}],"limit":null}]}"#);
        let request = request.expect("a request");
        let call = request.call().expect("a call");
        assert_eq!((call.domain, call.descriptors.len(), call.descriptors[0].limit), ("", 1, None));
    }

    #[test]
    fn faults_name_their_place() {
        assert_eq!(error("{"), "the body is no call: invalid JSON at line 1 column 1");
        assert_eq!(error("{\n\"domian\":1}"), "the body is no call: unexpected value at line 2 column 8");
        assert_eq!(error(r#"{"hitsAddend":-1}"#), "the body is no call: unexpected value at line 1 column 16");
        let many = format!("{{\"descriptors\":[{}{{}}]}}", "{},".repeat(10_000));
        assert!(error(&many).contains("column 319"), "{}", error(&many));
        let limit = |limit: &str| error(&format!("{{\"descriptors\":[{{{limit}}}]}}"));
        assert_eq!(limit(r#""limit":{"unit":"FORTNIGHT"}"#), "a limit in a descriptor has an unknown unit");
        assert_eq!(limit(r#""is_negative_hits":true"#), "negative hits are not supported");
    }
}
