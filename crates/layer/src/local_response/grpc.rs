//! Responses to gRPC calls that no upstream sent. They consist of header fields only, with the gRPC status that is
//! usually in the trailers ("Trailers-Only" in gRPC's PROTOCOL-HTTP2.md). gRPC clients understand no other form.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::LocalResponse;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Milliseconds until the client may retry the call. A negative value forbids a retry (gRPC proposal A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// A protocol variant of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcCall {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web, which sends trailers at the end of the body, for clients that cannot read trailers.
    Web,
    /// gRPC-Web with bodies in Base64.
    WebText,
}

impl GrpcCall {
    /// Returns the variant of a gRPC call, or `None` for any other request. Calls use POST. A gRPC error has status
    /// 200, so a cache could store it if it were the response to another method.
    pub fn detect(method: &Method, fields: &HeaderMap) -> Option<Self> {
        if method != Method::POST {
            return None;
        }
        let content_type = fields.get(CONTENT_TYPE)?.as_bytes();
        [Self::WebText, Self::Web, Self::Grpc].into_iter().find(|call| {
            let expected = call.content_type().as_bytes();
            let has_prefix =
                content_type.get(..expected.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(expected));
            has_prefix && matches!(content_type.get(expected.len()), None | Some(b'+' | b';' | b' ' | b'\t'))
        })
    }

    /// Returns the content type of responses. The content type of requests can have a suffix such as `+proto`.
    fn content_type(self) -> &'static str {
        match self {
            Self::Grpc => "application/grpc",
            Self::Web => "application/grpc-web",
            Self::WebText => "application/grpc-web-text",
        }
    }
}

/// Returns the trailers that end a response which has already started.
pub(super) fn trailers(reason: &LocalResponse) -> HeaderMap {
    let mut fields = HeaderMap::new();
    insert_status(reason, &mut fields);
    fields
}

/// Returns the response to a call. Its fields are added to `fields`.
pub(super) fn response(reason: &LocalResponse, call: GrpcCall, mut fields: HeaderMap) -> Response<Full<Bytes>> {
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type()));
    let status = insert_status(reason, &mut fields);
    if let Some(seconds) = reason.retry_after() {
        fields.insert(RETRY_AFTER, seconds.into());
        fields.insert(PUSHBACK, seconds.saturating_mul(1_000).into());
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        fields.insert(PUSHBACK, HeaderValue::from_static("-1"));
    }
    let mut response = Response::new(Full::default());
    *response.headers_mut() = fields;
    response
}

/// Adds the gRPC status and message. Returns the HTTP status that a response to another request would have.
fn insert_status(reason: &LocalResponse, fields: &mut HeaderMap) -> StatusCode {
    let (status, detail) = reason.status_and_detail();
    fields.insert(STATUS, code(status).into());
    fields.extend(HeaderValue::from_str(&encode(&detail)).ok().map(|message| (MESSAGE, message)));
    status
}

/// Returns the gRPC status for an HTTP status (gRPC's statuscodes.md).
fn code(status: StatusCode) -> u16 {
    match status.as_u16() {
        // INVALID_ARGUMENT
        400 | 414 => 3,
        // UNAUTHENTICATED. A service redirects to a login.
        300..=399 | 401 => 16,
        // PERMISSION_DENIED
        403 => 7,
        // DEADLINE_EXCEEDED
        408 | 504 => 4,
        // RESOURCE_EXHAUSTED
        413 | 429 | 431 => 8,
        // UNIMPLEMENTED
        404 | 405 | 501 | 505 => 12,
        // UNAVAILABLE
        502 | 503 => 14,
        // INTERNAL
        _ => 13,
    }
}

/// Encodes a `grpc-message`: everything except printable ASCII, and `%`, is percent-encoded.
fn encode(message: &str) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(message, SET).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(content_type: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(content_type).expect("a value"))])
    }

    /// Returns the status and the fields of a response, in their order.
    fn response_to(reason: LocalResponse, content_type: &str) -> (u16, Vec<String>) {
        let response = reason.into_response_to(&Method::POST, fields(content_type));
        let field = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().expect("text"));
        (response.status().as_u16(), response.headers().iter().map(field).collect())
    }

    #[test]
    fn call_is_detected_by_its_content_type() {
        for call in ["application/grpc", "application/grpc+proto", "Application/gRPC;x=1", "application/grpc ; x=1"] {
            assert_eq!(GrpcCall::detect(&Method::POST, &fields(call)), Some(GrpcCall::Grpc), "{call}");
        }
        assert_eq!(GrpcCall::detect(&Method::POST, &fields("application/grpc-web+proto")), Some(GrpcCall::Web));
        assert_eq!(GrpcCall::detect(&Method::POST, &fields("application/grpc-web-text")), Some(GrpcCall::WebText));
        for other in ["application/grpcish", "application/grp", "application/json", "application/grpc-other", ""] {
            assert_eq!(GrpcCall::detect(&Method::POST, &fields(other)), None, "{other}");
        }
        assert_eq!(GrpcCall::detect(&Method::POST, &HeaderMap::new()), None);
    }

    /// A cache in front of the gateway could store a 200 without a body as the content of the target.
    #[test]
    fn only_post_requests_get_grpc_errors() {
        for method in [Method::GET, Method::HEAD, Method::PUT] {
            let limited = LocalResponse::Limited { violated: ["a"].into_iter().collect(), retry_after: Some(7) };
            let response = limited.into_response_to(&method, fields("application/grpc"));
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{method}");
        }
        let response = LocalResponse::Options.into_response_to(&Method::OPTIONS, fields("application/grpc"));
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
    }

    #[test]
    fn limited_call_gets_a_retry_delay() {
        let limited = |retry_after| LocalResponse::Limited { violated: ["a"].into_iter().collect(), retry_after };
        let (status, fields) = response_to(limited(Some(7)), "application/grpc+proto");
        assert_eq!(
            (status, fields.join("\n").as_str()),
            (
                200,
                "content-type: application/grpc\ngrpc-status: 8\n\
                 grpc-message: the same request will pass in 7 s at the earliest\nretry-after: 7\n\
                 grpc-retry-pushback-ms: 7000"
            )
        );
        let (_, never) = response_to(limited(None), "application/grpc");
        assert_eq!(never.last().map(String::as_str), Some("grpc-retry-pushback-ms: -1"));
    }

    #[test]
    fn grpc_status_matches_the_http_status() {
        let code = |reason| response_to(reason, "application/grpc").1[1].clone();
        assert_eq!(code(LocalResponse::StoreFailed), "grpc-status: 14");
        assert_eq!(code(LocalResponse::NoRoute), "grpc-status: 12");
        assert_eq!(code(LocalResponse::Malformed), "grpc-status: 3");
        assert_eq!(code(LocalResponse::BodyTooLong), "grpc-status: 8");
        assert_eq!(code(LocalResponse::UpstreamTimedOut { not_retried: None }), "grpc-status: 4");
        assert_eq!(code(LocalResponse::Panicked), "grpc-status: 13");
        assert_eq!(code(LocalResponse::Banned { retry_after: 9, configured: None }), "grpc-status: 7");
    }

    #[test]
    fn trailers_carry_the_grpc_status() {
        let trailers = LocalResponse::DeadlinePassed.trailers();
        assert_eq!(
            (&trailers[STATUS], &trailers[MESSAGE]),
            (&"4".parse().unwrap(), &"the deadline has passed".parse().unwrap())
        );
        assert_eq!(trailers.len(), 2);
    }

    #[test]
    fn message_is_percent_encoded() {
        assert_eq!(encode("100 % of \u{e9}\n"), "100 %25 of %C3%A9%0A");
    }
}
