//! Reason phrases of status codes.

use http::StatusCode;

/// Returns the reason phrase of RFC 9110, or an empty text for a code that is not registered. `http` still has the names of two
/// codes from before RFC 9110.
pub fn phrase(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        _ => status.canonical_reason().unwrap_or_default(),
    }
}
