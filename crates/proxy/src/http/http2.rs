//! Finds malformed HTTP/2 fields that the crate `h2` accepts, in requests and responses.

use http::HeaderValue;

/// Returns `true` if the value starts or ends with whitespace (RFC 9113 section 8.2.1).
pub(crate) fn has_outer_whitespace(value: &HeaderValue) -> bool {
    let is_white = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_white(value.as_bytes().first()) || is_white(value.as_bytes().last())
}
