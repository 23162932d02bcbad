//! How large a request's head may be.

use http::{Method, Request};

use crate::local_response::LocalResponse;

/// The longest method. Registered ones have less than half of it, and a longer one would cost metrics, logs and upstreams.
const MAX_METHOD: usize = 32;

/// What a request line holds beside method and target: two spaces, a version, the end of the line.
const AROUND_TARGET: usize = 12;

/// Bytes beyond the bounds that are still read, to tell which part of the head is too large.
const SLACK: usize = 8 * 1024;

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Header fields.
    pub(crate) fields: usize,
    /// Bytes of header fields, as they are written in HTTP/1.
    pub(crate) field_bytes: usize,
    /// Bytes of a target.
    pub(crate) target: usize,
}

impl Bounds {
    /// Why a head is too large, if it is. The protocols have bounds of their own, which are not much above these.
    pub(crate) fn excess<B>(&self, request: &Request<B>) -> Option<LocalResponse> {
        if is_long(request.method()) {
            return Some(LocalResponse::MethodNotImplemented);
        }
        let uri = request.uri();
        let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
        if authority + uri.path_and_query().map_or(0, |path| path.as_str().len()) > self.target {
            return Some(LocalResponse::UriTooLong);
        }
        let fields = request.headers();
        // A colon, a space and the end of the line.
        let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        (fields.len() > self.fields || bytes > self.field_bytes).then_some(LocalResponse::HeadersTooLarge)
    }

    /// Why a head of HTTP/1 that has no end yet is too large, if it is.
    pub(crate) fn endless(&self, start: &[u8]) -> Option<LocalResponse> {
        if start.len() < self.target + self.field_bytes + SLACK {
            return None;
        }
        let line = start.iter().position(|byte| *byte == b'\n').unwrap_or(start.len());
        let is_target = line > MAX_METHOD + AROUND_TARGET + self.target;
        Some(if is_target { LocalResponse::UriTooLong } else { LocalResponse::HeadersTooLarge })
    }
}

fn is_long(method: &Method) -> bool {
    method.as_str().len() > MAX_METHOD
}

/// The word by which a local_response of a head is counted.
pub(crate) fn cause(local_response: &LocalResponse) -> &'static str {
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
