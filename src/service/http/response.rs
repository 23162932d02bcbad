//! Writes an answer as a `RateLimitResponse` in JSON (protobuf.dev/programming-guides/json): default values are absent.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;

use crate::service::answer::Answer;
use crate::service::unit::{self, whole_seconds};
use tidegate_service::{Metadata, Status};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<DescriptorStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<Field<'a>>,
    #[serde(skip_serializing_if = "String::is_empty")]
    raw_body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<&'a Metadata>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DescriptorStatus<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<CurrentLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentLimit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Field<'a> {
    key: &'a str,
    value: &'a str,
}

/// Returns the JSON.
pub(super) fn write(answer: &Answer<'_>) -> Vec<u8> {
    let fields = answer.fields.iter();
    let fields = fields.filter_map(|(name, value)| Some(Field { key: name.as_str(), value: value.to_str().ok()? }));
    let response = Response {
        overall_code: code(answer.is_over),
        statuses: answer.statuses.iter().map(status).collect(),
        response_headers_to_add: fields.collect(),
        raw_body: BASE64_STANDARD.encode(&answer.body),
        dynamic_metadata: answer.dynamic_metadata.as_ref(),
    };
    // The serialization of texts and numbers cannot fail.
    serde_json::to_vec(&response).unwrap_or_default()
}

fn code(is_over: bool) -> &'static str {
    if is_over { "OVER_LIMIT" } else { "OK" }
}

fn status<'a>(status: &Status<'a>) -> DescriptorStatus<'a> {
    let current_limit = status.limit.map(|limit| CurrentLimit {
        name: limit.name,
        requests_per_unit: limit.requests_per_unit,
        unit: unit::name(limit.unit),
    });
    DescriptorStatus {
        code: code(status.is_over),
        current_limit,
        limit_remaining: status.remaining,
        duration_until_reset: status.until_reset.map(|duration| format!("{}s", whole_seconds(duration))),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
