//! The errors of OpenAI's API.

use http::StatusCode;
use serde_json::json;

use super::Refusal;
use crate::local_response::ConfiguredResponse;

/// Returns the response to a request that limits reject.
pub(super) fn response(refusal: Refusal<'_>) -> ConfiguredResponse {
    let kind = if refusal.counts_tokens { "tokens" } else { "requests" };
    let error = json!({ "message": refusal.message(), "type": kind, "param": null, "code": "rate_limit_exceeded" });
    refusal.respond(StatusCode::TOO_MANY_REQUESTS, &json!({ "error": error }))
}
