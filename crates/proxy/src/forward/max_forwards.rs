//! Responds to OPTIONS and TRACE requests that end at this proxy (`Max-Forwards: 0`, RFC 9110 section 7.6.2).

use std::io::Write;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, MAX_FORWARDS, VIA};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;

use super::local_response;
use crate::upstream::{RequestBody, ResponseBody};
use tidegate_layer::local_response::LocalResponse;
use tidegate_rules::evaluation::{LastHop, last_hop, max_forwards};

/// Responds to a request for the gateway itself, and rejects methods that are not forwarded. Returns `None` for other
/// requests.
pub(super) fn respond(request: &mut Request<RequestBody>) -> Option<Response<ResponseBody>> {
    match last_hop(request.method(), request.headers()) {
        Some(LastHop::Options) => Some(local_response(LocalResponse::Options, None)),
        Some(LastHop::Trace) => Some(trace(request)),
        Some(LastHop::NotForwarded) => Some(local_response(LocalResponse::MethodNotImplemented, None)),
        None => {
            if *request.method() == Method::OPTIONS
                && let Some(count) = max_forwards(request.headers())
            {
                request.headers_mut().insert(MAX_FORWARDS, HeaderValue::from(count - 1));
            }
            None
        }
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
