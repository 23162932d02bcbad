//! Writes an answer as a `RateLimitResponse`, whose fields have the numbers of `envoy/service/ratelimit/v3/rls.proto`.

use std::time::Duration;

use crate::protobuf::Message;
use crate::service::answer::{Answer, whole_seconds};
use crate::service::unit;
use tidegate_service::{CurrentLimit, Status};

/// The numbers of `RateLimitResponse.Code`.
const OK: u64 = 1;
const OVER_LIMIT: u64 = 2;

/// Returns the message.
pub(super) fn write(answer: &Answer<'_>) -> Vec<u8> {
    let mut message = Message::default();
    message.number(1, code(answer.is_over));
    for descriptor in &answer.statuses {
        message.message(2, &status(descriptor));
    }
    for (name, value) in &answer.fields {
        let mut field = Message::default();
        field.text(1, name.as_str());
        field.bytes(2, value.as_bytes());
        message.message(3, &field);
    }
    message.bytes(5, &answer.body);
    message.into_bytes()
}

fn code(is_over: bool) -> u64 {
    if is_over { OVER_LIMIT } else { OK }
}

/// Returns a `DescriptorStatus`.
fn status(Status { is_over, limit, remaining, until_reset }: &Status<'_>) -> Message {
    let mut message = Message::default();
    message.number(1, code(*is_over));
    if let Some(limit) = limit {
        message.message(2, &current_limit(limit));
    }
    message.number(3, u64::from(*remaining));
    if let Some(until_reset) = until_reset {
        message.message(4, &duration(*until_reset));
    }
    message
}

/// Returns a `RateLimit`.
fn current_limit(limit: &CurrentLimit<'_>) -> Message {
    let mut message = Message::default();
    message.number(1, u64::from(limit.requests_per_unit));
    message.number(2, unit::number(limit.unit));
    message.text(3, limit.name.unwrap_or_default());
    message
}

/// Returns a `google.protobuf.Duration`.
fn duration(duration: Duration) -> Message {
    let mut message = Message::default();
    message.number(1, whole_seconds(duration));
    message
}
