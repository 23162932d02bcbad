//! The errors of Anthropic's API.

use http::StatusCode;
use serde_json::json;

use super::Refusal;
use crate::local_response::ConfiguredResponse;

/// Returns the response to a request that limits reject.
pub(super) fn response(refusal: Refusal<'_>) -> ConfiguredResponse {
    let error = json!({ "type": "rate_limit_error", "message": refusal.message() });
    let mut body = json!({ "type": "error", "error": error });
    if let Some(id) = refusal.request_id {
        body["request_id"] = id.into();
    }
    refusal.respond(StatusCode::TOO_MANY_REQUESTS, &body)
}
