//! Limits on the size of a request head.

use http::Request;

use tidegate_layer::local_response::LocalResponse;
use tidegate_rules::evaluation::{HeadLimits, LargeHead, MAX_METHOD};

/// The bytes of a request line besides method and target: two spaces, the version, the end of the line.
const LINE_OVERHEAD: usize = 12;

/// How many bytes beyond the limits are read, to find out which part of the head is too large.
const SLACK: usize = 8 * 1024;

/// Returns a rejection if the head is too large. Each protocol also has its own limits, slightly above these.
pub(crate) fn check_request<B>(limits: &HeadLimits, request: &Request<B>) -> Option<LocalResponse> {
    let large = limits.check(request.method(), request.uri(), request.headers())?;
    Some(match large {
        LargeHead::Method => LocalResponse::MethodNotImplemented,
        LargeHead::Target => LocalResponse::UriTooLong,
        LargeHead::Fields => LocalResponse::HeadersTooLarge,
    })
}

/// Returns a rejection if an incomplete HTTP/1 head is already too large.
pub(crate) fn check_incomplete(limits: &HeadLimits, start: &[u8]) -> Option<LocalResponse> {
    if start.len() < limits.target + limits.field_bytes + SLACK {
        return None;
    }
    let line = start.iter().position(|byte| *byte == b'\n').unwrap_or(start.len());
    let is_target = line > MAX_METHOD + LINE_OVERHEAD + limits.target;
    Some(if is_target { LocalResponse::UriTooLong } else { LocalResponse::HeadersTooLarge })
}

/// Returns the label by which a rejected head is counted.
pub(crate) fn rejection_cause(local_response: &LocalResponse) -> &'static str {
    match local_response {
        LocalResponse::UriTooLong => "max_target",
        LocalResponse::HeadersTooLarge => "max_fields",
        LocalResponse::MethodNotImplemented => "method",
        LocalResponse::CodingNotImplemented => "coding",
        LocalResponse::VersionNotSupported => "version",
        LocalResponse::UnknownScheme => "scheme",
        _ => "malformed",
    }
}
