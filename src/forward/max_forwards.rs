//! Responds to OPTIONS and TRACE requests that end at this proxy (`Max-Forwards: 0`, RFC 9110 section 7.6.2).

use std::io::Write;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, MAX_FORWARDS, VIA};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;

use super::local_response;
use crate::local_response::LocalResponse;
use crate::upstream::{RequestBody, ResponseBody};

/// Responds to a request for the gateway itself, and rejects methods that are not forwarded. Returns `None` for other
/// requests.
pub(super) fn respond(request: &mut Request<RequestBody>) -> Option<Response<ResponseBody>> {
    let method = request.method();
    let (is_trace, is_options) = (*method == Method::TRACE, *method == Method::OPTIONS);
    if *method == Method::CONNECT {
        return Some(local_response(LocalResponse::MethodNotImplemented, None)); // a tunnel would bypass all rules
    }
    if !is_trace && !is_options {
        return None;
    }
    let is_last_hop = !decrement_max_forwards(request.headers_mut());
    match is_last_hop {
        true if is_trace => Some(trace(request)),
        true => Some(local_response(LocalResponse::Options, None)),
        // The response of an origin server would reveal fields that proxies have added.
        false => is_trace.then(|| local_response(LocalResponse::MethodNotImplemented, None)),
    }
}

/// Decrements `Max-Forwards`. Returns `false` if it is zero. Ignores an invalid value.
fn decrement_max_forwards(headers: &mut HeaderMap) -> bool {
    let Some(value) = headers.get(MAX_FORWARDS) else { return true };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse::<u64>().ok()) {
        Some(0) => false,
        Some(count) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(count - 1));
            true
        }
        None => true,
    }
}

/// Echoes the received request. Contains only `Host`, `Via` and `Max-Forwards`: other fields may be secret (RFC 9110
/// section 9.3.8).
fn trace(request: &Request<RequestBody>) -> Response<ResponseBody> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let version = if request.version() == Version::HTTP_10 { "1.0" } else { "1.1" };
    let mut message = format!("TRACE {target} HTTP/{version}\r\n").into_bytes();
    for name in [HOST, VIA, MAX_FORWARDS] {
        for value in request.headers().get_all(&name) {
            // Writing to a `Vec` cannot fail.
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
