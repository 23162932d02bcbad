//! Limits on the size of a request head.

use http::{Method, Request};

use crate::local_response::LocalResponse;

/// The longest method. Registered methods are less than half as long; longer ones would burden metrics, logs and
/// upstreams.
const MAX_METHOD: usize = 32;

/// The bytes of a request line besides method and target: two spaces, the version, the end of the line.
const LINE_OVERHEAD: usize = 12;

/// How many bytes beyond the limits are read, to find out which part of the head is too large.
const SLACK: usize = 8 * 1024;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    /// The maximum number of header fields.
    pub(crate) fields: usize,
    /// The maximum number of bytes of header fields, as written in HTTP/1.
    pub(crate) field_bytes: usize,
    /// The maximum number of bytes of a target.
    pub(crate) target: usize,
}

impl HeadLimits {
    /// Returns a rejection if the head is too large. Each protocol also has its own limits, slightly above these.
    pub(crate) fn check_request<B>(&self, request: &Request<B>) -> Option<LocalResponse> {
        if is_too_long(request.method()) {
            return Some(LocalResponse::MethodNotImplemented);
        }
        let uri = request.uri();
        let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
        if authority + uri.path_and_query().map_or(0, |path| path.as_str().len()) > self.target {
            return Some(LocalResponse::UriTooLong);
        }
        let fields = request.headers();
        // The separator `: ` and the end of the line.
        let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        (fields.len() > self.fields || bytes > self.field_bytes).then_some(LocalResponse::HeadersTooLarge)
    }

    /// Returns a rejection if an incomplete HTTP/1 head is already too large.
    pub(crate) fn check_incomplete(&self, start: &[u8]) -> Option<LocalResponse> {
        if start.len() < self.target + self.field_bytes + SLACK {
            return None;
        }
        let line = start.iter().position(|byte| *byte == b'\n').unwrap_or(start.len());
        let is_target = line > MAX_METHOD + LINE_OVERHEAD + self.target;
        Some(if is_target { LocalResponse::UriTooLong } else { LocalResponse::HeadersTooLarge })
    }
}

fn is_too_long(method: &Method) -> bool {
    method.as_str().len() > MAX_METHOD
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
