//! Writes an answer as a `RateLimitResponse`.

use super::messages::{CurrentLimit, DescriptorStatus, HeaderField, OK, OVER_LIMIT, RateLimitResponse, Seconds};
use crate::service::answer::Answer;
use crate::service::unit::{self, whole_seconds};
use tidegate_service::Status;

/// Returns the message.
pub(super) fn message(answer: Answer<'_>) -> RateLimitResponse {
    let fields = answer.fields.iter();
    let fields = fields.filter_map(|(name, value)| {
        Some(HeaderField { key: name.as_str().to_owned(), value: value.to_str().ok()?.to_owned() })
    });
    RateLimitResponse {
        overall_code: code(answer.is_over),
        statuses: answer.statuses.iter().map(status).collect(),
        response_headers_to_add: fields.collect(),
        raw_body: answer.body.into(),
        dynamic_metadata: answer.dynamic_metadata.map(Into::into),
    }
}

fn code(is_over: bool) -> i32 {
    if is_over { OVER_LIMIT } else { OK }
}

fn status(status: &Status<'_>) -> DescriptorStatus {
    let seconds = |duration| Seconds { seconds: i64::try_from(whole_seconds(duration)).unwrap_or(i64::MAX) };
    DescriptorStatus {
        code: code(status.is_over),
        current_limit: status.limit.as_ref().map(current_limit),
        limit_remaining: status.remaining,
        duration_until_reset: status.until_reset.map(seconds),
    }
}

fn current_limit(limit: &tidegate_service::CurrentLimit<'_>) -> CurrentLimit {
    let name = limit.name.unwrap_or_default().to_owned();
    CurrentLimit { requests_per_unit: limit.requests_per_unit, unit: unit::number(limit.unit), name }
}
