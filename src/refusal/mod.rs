//! Every answer that did not come from an upstream, made in one place (RFC 9457 problem details).

mod grpc;
mod limited;

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

pub(crate) use self::grpc::Call;
pub(crate) use self::limited::Violated;
use crate::client::NoClient;
use crate::cost::CostError;
use crate::facts::BadRequest;
use crate::reason;
use crate::rules::{Unclear, Unjudged};
use crate::sanitize::BadField;

/// Why a request is answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400, 501 or 508: no host, no valid path, a tunnel, in a circle, ...
    BadRequest(BadRequest),
    /// 400: a limit cannot tell who is asking.
    NoClient {
        /// The limit's name.
        limit: String,
        /// What is wrong with the value.
        cause: NoClient,
    },
    /// 400: a limit cannot tell what the request costs.
    BadCost {
        /// The limit's name.
        limit: String,
        /// What the request says instead.
        cause: CostError,
    },
    /// 400: no request, or one that could be read in two ways.
    Malformed,
    /// 400: a target whose scheme is neither `http` nor `https`.
    SchemeUnknown,
    /// 400: `host` and `:authority` of HTTP/2 name different hosts.
    TwoHosts,
    /// 204: `OPTIONS *` asks what the server as a whole has on offer, which is nothing special.
    Options,
    /// 404: no route matches.
    NoRoute,
    /// 400: the client's body broke off, or was none.
    BodyBroken,
    /// 413: the request's body is longer than its route takes.
    BodyTooLong,
    /// 408: the client stopped sending its body.
    BodyTimedOut,
    /// 414: a target of more than `max_target`.
    UriTooLong,
    /// 429: limits refused.
    Limited {
        /// Which.
        violated: Violated,
        /// Whole seconds until a retry can pass; none if it never can.
        retry_after: Option<u64>,
    },
    /// 431: more than `max_fields` header fields, or more than `max_field_bytes` of them.
    HeadersTooLarge,
    /// 501: a method that is for the gateway itself, which has none of them (CONNECT, TRACE), or one of more than 32 letters.
    MethodNotImplemented,
    /// 501: a transfer coding other than `chunked`.
    CodingNotImplemented,
    /// 505: a version of HTTP other than 1.0, 1.1 and 2.
    VersionNotSupported,
    /// 503: the store did not answer, and a limit denies rather than not count.
    StoreFailed,
    /// 502: no connection to the upstream; the request was not sent.
    UpstreamUnreachable,
    /// 503: the upstream has as many requests as it may have; this one was not sent.
    UpstreamBusy,
    /// 502: the upstream's answer was none, or broke off before it began.
    UpstreamBroken,
    /// 504: the upstream did not begin to answer in time.
    UpstreamTimedOut,
    /// 504: the deadline that the client gave its call has passed (`grpc-timeout`).
    DeadlinePassed,
    /// 500: the service was put together wrongly.
    Internal,
    /// 500: a mistake in the program ended the request, and nothing else.
    Panicked,
}

/// RFC 9457 section 3.1.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
}

impl Refusal {
    /// The answer.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        self.answer_in(None, HeaderMap::new())
    }

    /// The answer to a request of this method and these fields, whose memory it reuses. A gRPC call is answered in the words of
    /// gRPC.
    pub(crate) fn answer_to(self, method: &Method, fields: HeaderMap) -> Response<Full<Bytes>> {
        self.answer_in(Call::of(method, &fields), fields)
    }

    /// The answer to a call of gRPC, or to any other request; the memory of these fields is reused.
    pub(crate) fn answer_in(self, call: Option<Call>, mut fields: HeaderMap) -> Response<Full<Bytes>> {
        fields.clear();
        if let Some(call) = call {
            return grpc::answer(&self, call, fields);
        }
        let (status, body) = self.problem();
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        *headers = fields;
        if status != StatusCode::NO_CONTENT {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        }
        let seconds = self.retry_after().map(|seconds| HeaderValue::from_str(itoa::Buffer::new().format(seconds)));
        if let Some(Ok(seconds)) = seconds {
            headers.insert(RETRY_AFTER, seconds);
        }
        response
    }

    /// What ends the answer to a call of gRPC that has begun.
    pub(crate) fn trailers(&self) -> HeaderMap {
        grpc::trailers(self)
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.cause().0
    }

    /// The status, and the problem details as JSON.
    fn problem(&self) -> (StatusCode, Vec<u8>) {
        match self {
            Self::Options => return (StatusCode::NO_CONTENT, Vec::new()),
            Self::Limited { violated, retry_after } => {
                return (StatusCode::TOO_MANY_REQUESTS, limited::body(violated, *retry_after));
            }
            _ => {}
        }
        let (status, detail) = self.cause();
        let title = reason::phrase(status); // RFC 9457 section 4.2.1
        let problem = Problem { kind: "about:blank", title, status: status.as_u16(), detail: &detail };
        // Strings and numbers can always be written.
        let mut body = serde_json::to_vec(&problem).unwrap_or_default();
        body.push(b'\n'); // for who reads it in a terminal
        (status, body)
    }

    /// The status (RFC 9110 section 15, and RFC 6585 section 4 for 429), and what is wrong.
    pub(crate) fn cause(&self) -> (StatusCode, Cow<'_, str>) {
        match self {
            Self::BadRequest(cause @ BadRequest::BadField(BadField::Loop)) => {
                (StatusCode::LOOP_DETECTED, cause.to_string().into())
            }
            Self::BadRequest(cause @ BadRequest::Tunnel) => (StatusCode::NOT_IMPLEMENTED, cause.to_string().into()),
            Self::BadRequest(cause) => (StatusCode::BAD_REQUEST, cause.to_string().into()),
            Self::NoClient { limit, cause } => {
                (StatusCode::BAD_REQUEST, format!("the value that identifies clients of `{limit}` {cause}").into())
            }
            Self::BadCost { limit, cause } => {
                (StatusCode::BAD_REQUEST, format!("the value that tells the cost for `{limit}` {cause}").into())
            }
            Self::Options => (StatusCode::NO_CONTENT, "".into()),
            Self::Malformed => (StatusCode::BAD_REQUEST, "the request is malformed".into()),
            Self::SchemeUnknown => (StatusCode::BAD_REQUEST, "the target's scheme is not one of HTTP".into()),
            Self::TwoHosts => (StatusCode::BAD_REQUEST, "`host` and `:authority` are not the same".into()),
            Self::VersionNotSupported => {
                (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0, HTTP/1.1 and HTTP/2 are understood".into())
            }
            Self::NoRoute => (StatusCode::NOT_FOUND, "no route matches".into()),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "the request's body broke off".into()),
            Self::BodyTooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the request's body is too long".into()),
            Self::BodyTimedOut => (StatusCode::REQUEST_TIMEOUT, "the request's body stopped coming".into()),
            Self::HeadersTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "there are too many header fields, or too many bytes of them".into(),
            ),
            Self::MethodNotImplemented => (StatusCode::NOT_IMPLEMENTED, "this method is not available here".into()),
            Self::CodingNotImplemented => {
                (StatusCode::NOT_IMPLEMENTED, "`chunked` is the only transfer coding that is understood".into())
            }
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, "the target is too long".into()),
            Self::Limited { retry_after, .. } => {
                (StatusCode::TOO_MANY_REQUESTS, limited::detail(*retry_after, &mut itoa::Buffer::new()).concat().into())
            }
            Self::StoreFailed => (StatusCode::SERVICE_UNAVAILABLE, "quotas cannot be checked at present".into()),
            Self::UpstreamUnreachable => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached".into()),
            Self::UpstreamBusy => (StatusCode::SERVICE_UNAVAILABLE, "the upstream is busy".into()),
            Self::UpstreamBroken => (StatusCode::BAD_GATEWAY, "the upstream gave no valid answer".into()),
            Self::UpstreamTimedOut => (StatusCode::GATEWAY_TIMEOUT, "the upstream gave no answer in time".into()),
            Self::DeadlinePassed => (StatusCode::GATEWAY_TIMEOUT, "the deadline has passed".into()),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "the gateway is put together wrongly".into()),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed at this request".into()),
        }
    }

    /// The seconds of `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Limited { retry_after, .. } => *retry_after,
            Self::StoreFailed | Self::UpstreamBusy => Some(1),
            _ => None,
        }
    }
}

impl Refusal {
    /// Returns the names of the limits that rejected the request.
    pub(crate) fn violated(&self) -> Vec<String> {
        match self {
            Self::Limited { violated, .. } => violated.names(),
            _ => Vec::new(),
        }
    }
}

impl From<BadRequest> for Refusal {
    fn from(cause: BadRequest) -> Self {
        Self::BadRequest(cause)
    }
}

impl From<Unjudged<'_>> for Refusal {
    fn from(Unjudged { limit, cause }: Unjudged<'_>) -> Self {
        let limit = limit.to_owned();
        match cause {
            Unclear::Client(cause) => Self::NoClient { limit, cause },
            Unclear::Cost(cause) => Self::BadCost { limit, cause },
        }
    }
}
