//! Refusals of gRPC calls: an answer of header fields alone, with the status that trailers would have ("Trailers-Only" in
//! PROTOCOL-HTTP2.md of gRPC). Clients of gRPC understand no other.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use super::Refusal;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Milliseconds until a call may be tried again; below zero: not at all (gRPC proposal A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// A kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// gRPC itself.
    Grpc,
    /// gRPC-Web, for clients that see no trailers: those of an answer are the end of its body.
    Web,
    /// gRPC-Web with its bodies in Base64.
    WebText,
}

impl Call {
    /// The kind that a request is, if it is a call. Calls are POST: to no other method may a refusal be 200, since a cache could
    /// keep it as what was asked for.
    pub(crate) fn of(method: &Method, fields: &HeaderMap) -> Option<Self> {
        if method != Method::POST {
            return None;
        }
        let asked = fields.get(CONTENT_TYPE)?.as_bytes();
        [Self::WebText, Self::Web, Self::Grpc].into_iter().find(|call| {
            let known = call.content_type().as_bytes();
            let begins = asked.get(..known.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(known));
            begins && matches!(asked.get(known.len()), None | Some(b'+' | b';' | b' ' | b'\t'))
        })
    }

    /// The content type of its answers. That of its requests begins likewise; what follows is `+proto` or the like.
    fn content_type(self) -> &'static str {
        match self {
            Self::Grpc => "application/grpc",
            Self::Web => "application/grpc-web",
            Self::WebText => "application/grpc-web-text",
        }
    }
}

/// The trailers that end an answer which has begun.
pub(super) fn trailers(refusal: &Refusal) -> HeaderMap {
    let mut fields = HeaderMap::new();
    tell(refusal, &mut fields);
    fields
}

/// The answer to a call; its fields are added to these.
pub(super) fn answer(refusal: &Refusal, call: Call, mut fields: HeaderMap) -> Response<Full<Bytes>> {
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type()));
    let status = tell(refusal, &mut fields);
    if let Some(seconds) = refusal.retry_after() {
        fields.insert(RETRY_AFTER, seconds.into());
        fields.insert(PUSHBACK, seconds.saturating_mul(1_000).into());
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        fields.insert(PUSHBACK, HeaderValue::from_static("-1"));
    }
    let mut response = Response::new(Full::default());
    *response.headers_mut() = fields;
    response
}

/// Adds what a call came to; returns the status that the answer would have in HTTP.
fn tell(refusal: &Refusal, fields: &mut HeaderMap) -> StatusCode {
    let (status, detail) = refusal.cause();
    fields.insert(STATUS, code(status).into());
    fields.extend(HeaderValue::from_bytes(&encode(&detail)).ok().map(|message| (MESSAGE, message)));
    status
}

/// The status of gRPC that means most nearly the same (statuscodes.md of gRPC).
fn code(status: StatusCode) -> u16 {
    match status.as_u16() {
        // INVALID_ARGUMENT
        400 | 414 => 3,
        // DEADLINE_EXCEEDED
        408 | 504 => 4,
        // RESOURCE_EXHAUSTED
        413 | 429 | 431 => 8,
        // UNIMPLEMENTED
        404 | 501 | 505 => 12,
        // UNAVAILABLE
        502 | 503 => 14,
        // INTERNAL
        _ => 13,
    }
}

/// `grpc-message` is printable ASCII; everything else in it, and `%`, is percent-encoded.
fn encode(message: &str) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte),
            _ => encoded.extend(format!("%{byte:02X}").bytes()),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(content_type: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(content_type).expect("a value"))])
    }

    /// The fields of an answer, in their order.
    fn told(refusal: Refusal, content_type: &str) -> (u16, Vec<String>) {
        let response = refusal.answer_to(&Method::POST, fields(content_type));
        let field = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().expect("text"));
        (response.status().as_u16(), response.headers().iter().map(field).collect())
    }

    #[test]
    fn a_call_is_known_by_its_content_type() {
        for call in ["application/grpc", "application/grpc+proto", "Application/gRPC;x=1", "application/grpc ; x=1"] {
            assert_eq!(Call::of(&Method::POST, &fields(call)), Some(Call::Grpc), "{call}");
        }
        assert_eq!(Call::of(&Method::POST, &fields("application/grpc-web+proto")), Some(Call::Web));
        assert_eq!(Call::of(&Method::POST, &fields("application/grpc-web-text")), Some(Call::WebText));
        for other in ["application/grpcish", "application/grp", "application/json", "application/grpc-other", ""] {
            assert_eq!(Call::of(&Method::POST, &fields(other)), None, "{other}");
        }
        assert_eq!(Call::of(&Method::POST, &HeaderMap::new()), None);
    }

    /// A cache before the gateway could keep a 200 without a body as what is at this target.
    #[test]
    fn a_refusal_of_no_other_method_is_200_whatever_its_content_type_says() {
        for method in [Method::GET, Method::HEAD, Method::PUT] {
            let limited = Refusal::Limited { violated: ["a"].into_iter().collect(), retry_after: Some(7) };
            let response = limited.answer_to(&method, fields("application/grpc"));
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{method}");
        }
        let response = Refusal::Options.answer_to(&Method::OPTIONS, fields("application/grpc"));
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
    }

    #[test]
    fn a_refused_call_is_told_when_to_come_back() {
        let limited = |retry_after| Refusal::Limited { violated: ["a"].into_iter().collect(), retry_after };
        let (status, fields) = told(limited(Some(7)), "application/grpc+proto");
        assert_eq!(
            (status, fields.join("\n").as_str()),
            (
                200,
                "content-type: application/grpc\ngrpc-status: 8\n\
                 grpc-message: the same request will pass in 7 s at the earliest\nretry-after: 7\n\
                 grpc-retry-pushback-ms: 7000"
            )
        );
        let (_, never) = told(limited(None), "application/grpc");
        assert_eq!(never.last().map(String::as_str), Some("grpc-retry-pushback-ms: -1"));
    }

    #[test]
    fn other_refusals_have_the_status_that_means_the_same() {
        let code = |refusal| told(refusal, "application/grpc").1[1].clone();
        assert_eq!(code(Refusal::StoreFailed), "grpc-status: 14");
        assert_eq!(code(Refusal::NoRoute), "grpc-status: 12");
        assert_eq!(code(Refusal::Malformed), "grpc-status: 3");
        assert_eq!(code(Refusal::BodyTooLong), "grpc-status: 8");
        assert_eq!(code(Refusal::UpstreamTimedOut), "grpc-status: 4");
        assert_eq!(code(Refusal::Panicked), "grpc-status: 13");
    }

    #[test]
    fn a_call_whose_answer_has_begun_is_ended_by_trailers() {
        let trailers = Refusal::DeadlinePassed.trailers();
        assert_eq!(
            (&trailers[STATUS], &trailers[MESSAGE]),
            (&"4".parse().unwrap(), &"the deadline has passed".parse().unwrap())
        );
        assert_eq!(trailers.len(), 2);
    }

    #[test]
    fn a_message_is_printable_ascii() {
        assert_eq!(encode("100 % of \u{e9}\n"), b"100 %25 of %C3%A9%0A");
    }
}
