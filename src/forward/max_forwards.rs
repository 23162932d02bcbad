//! Requests that are answered here, since this is their last proxy (`Max-Forwards: 0`, RFC 9110 section 7.6.2).

use std::io::Write;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, MAX_FORWARDS, VIA};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;

use super::refused;
use crate::local_response::LocalResponse;
use crate::upstream::{RequestBody, ResponseBody};

/// Answers what is meant for the gateway itself, and lets the rest pass.
pub(super) fn answer(request: &mut Request<RequestBody>) -> Option<Response<ResponseBody>> {
    let method = request.method();
    let (is_trace, is_options) = (*method == Method::TRACE, *method == Method::OPTIONS);
    if *method == Method::CONNECT {
        return Some(refused(LocalResponse::MethodNotImplemented, None)); // a tunnel would go around every rule
    }
    if !is_trace && !is_options {
        return None;
    }
    let is_ours = !may_go_further(request.headers_mut());
    match is_ours {
        true if is_trace => Some(trace(request)),
        true => Some(refused(LocalResponse::Options, None)),
        // An origin would show a client the fields that others added for it.
        false => is_trace.then(|| refused(LocalResponse::MethodNotImplemented, None)),
    }
}

/// Counts `Max-Forwards` down, and says no at its end. Nonsense is as good as absent.
fn may_go_further(headers: &mut HeaderMap) -> bool {
    let Some(value) = headers.get(MAX_FORWARDS) else { return true };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse::<u64>().ok()) {
        Some(0) => false,
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            true
        }
        None => true,
    }
}

/// What arrived here, of its fields only those that tell of the way: any other may be a secret (RFC 9110 section
/// 9.3.8).
fn trace(request: &Request<RequestBody>) -> Response<ResponseBody> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let version = if request.version() == Version::HTTP_10 { "1.0" } else { "1.1" };
    let mut message = format!("TRACE {target} HTTP/{version}\r\n").into_bytes();
    for name in [HOST, VIA, MAX_FORWARDS] {
        for value in request.headers().get_all(&name) {
            // Writing to memory cannot fail.
            _ = write!(message, "{name}: ");
            message.extend_from_slice(value.as_bytes());
            message.extend_from_slice(b"\r\n");
        }
    }
    message.extend_from_slice(b"\r\n");
    let mut response = Response::new(ResponseBody::from(Full::new(Bytes::from(message))));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("message/http"));
    response
}
