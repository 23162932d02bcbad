//! Responses that the gateway or the layer makes itself, as problem details (RFC 9457) or as gRPC errors.

mod challenge;
mod configured;
mod grpc;
mod limited;
pub mod preset;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

pub use self::configured::ConfiguredResponse;
pub use self::grpc::GrpcCall;
pub use self::limited::ViolatedLimits;
use tidegate_rules::client::ClientError;
use tidegate_rules::evaluation::reason;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::limits::cost::CostError;
use tidegate_rules::request::body::BodyError;
use tidegate_rules::request::facts::BadRequest;
use tidegate_rules::request::identity::{IdentityFault, IdentityKinds};
use tidegate_rules::request::sanitize::BadField;
use tidegate_rules::route::{FixedResponse, OriginalRequestError};
use tidegate_rules::rules::{LimitRejection, MissingInput};

/// Why limits cannot evaluate a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The body has no single meaning.
    #[error(transparent)]
    Body(BodyError),
    /// The body has a content coding. The status is 415.
    #[error("the body has a content coding, which a limit of the route cannot read")]
    Encoded,
    /// The body needs a bound of its output, which cannot be written since the client has signed the body.
    #[error("the body is signed and has no bound of its output")]
    Signed,
}

impl BodyFault {
    fn status(&self) -> StatusCode {
        match self {
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body(_) | Self::Signed => StatusCode::BAD_REQUEST,
        }
    }
}

/// The reason for a response that no upstream sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalResponse {
    /// 400, 501 or 508: the request has no host or no valid path, asks for a tunnel, loops, ...
    BadRequest(BadRequest),
    /// 400: the value that identifies the client of a limit is missing or invalid.
    NoClient {
        /// The limit's name.
        limit: String,
        /// The fault of the value.
        cause: ClientError,
        /// The claim that the verified token lacks.
        claim: Option<String>,
    },
    /// 400: the cost of the request for a limit is invalid.
    BadCost {
        /// The limit's name.
        limit: String,
        /// The fault of the value.
        cause: CostError,
    },
    /// 400: a proxy asks about a request, without the body on which a limit depends.
    NoBody {
        /// The limit's name.
        limit: String,
    },
    /// 400: the request is malformed or ambiguous.
    Malformed,
    /// 400: a target whose scheme is neither `http` nor `https`.
    UnknownScheme,
    /// 400: `host` and `:authority` of HTTP/2 name different hosts.
    HostMismatch,
    /// 204: `OPTIONS *` asks for the options of the whole server, which has no options.
    Options,
    /// 204: a preflight of a browser, which the route allows.
    Preflight,
    /// 403: a preflight from an origin that the route does not allow.
    OriginNotAllowed,
    /// 200: a proxy may let its request pass.
    Authorized,
    /// 403: a peer other than a trusted proxy asks for an authorization.
    UntrustedProxy,
    /// 400: the request that a proxy asks about is unknown.
    BadOriginal(OriginalRequestError),
    /// 200: the state of the client's own limits, as JSON.
    Quota(Vec<u8>),
    /// The response of the rule file. Boxed, because it is large.
    Configured(Box<ConfiguredResponse>),
    /// 405: a method other than GET and HEAD for a quota.
    QuotaMethod,
    /// 403, or the status of the rule file: an operator has banned the client.
    Banned {
        /// Whole seconds until the ban ends.
        retry_after: u64,
        /// The response of the rule file, if it has one.
        configured: Option<Arc<FixedResponse>>,
    },
    /// 401: the credentials are missing or not valid. 503: they cannot be verified at present.
    NotIdentified {
        /// The fault of the credentials.
        fault: IdentityFault,
        /// The credentials that the route accepts.
        accepted: IdentityKinds,
        /// The realm of users with passwords.
        realm: Option<Arc<str>>,
    },
    /// 403: the credentials are valid, but do not allow the request.
    NotAllowed {
        /// The condition that they do not meet.
        detail: Box<str>,
        /// Whether the condition is on a token.
        by_token: bool,
    },
    /// The response of an authorization service, which denies the request. Boxed, because it is large.
    ServiceDenied(Box<ConfiguredResponse>),
    /// 503: the authorization service does not decide.
    ServiceFailed {
        /// The reason in the access log.
        reason: &'static str,
    },
    /// 404: no route matches.
    NoRoute,
    /// 400: the request body is malformed or incomplete.
    BodyIncomplete,
    /// 413: the request body is longer than `max_body` of its route, or too long to be read.
    BodyTooLong,
    /// 400 or 415: the body has no single meaning, or is no request to a language model whose cost has a bound.
    BadBody(BodyFault),
    /// 408: the client sent its request body too slowly.
    BodyTimedOut,
    /// 414: a target of more than `max_target`.
    UriTooLong,
    /// 429: one or more limits rejected the request.
    Limited {
        /// The names of these limits.
        violated: ViolatedLimits,
        /// Whole seconds until a retry can be admitted. `None` if no retry can be.
        retry_after: Option<u64>,
    },
    /// 429 or 503: the client or the route has as many requests in flight as `concurrency` allows.
    Busy {
        /// Whether the bound of the client is reached.
        by_client: bool,
        /// The upstream of the route, if it has one.
        upstream: Option<Arc<str>>,
    },
    /// 431: more than `max_fields` header fields, or more than `max_field_bytes` of them.
    HeadersTooLarge,
    /// 501: a method that the gateway would have to implement itself (CONNECT, TRACE), or one of more than 32 letters.
    MethodNotImplemented,
    /// 501: a transfer coding other than `chunked`.
    CodingNotImplemented,
    /// 505: a version of HTTP other than 1.0, 1.1 and 2.
    VersionNotSupported,
    /// 503: the store failed, and a limit has `on_store_failure: deny`.
    StoreFailed,
    /// 502: the upstream is unreachable. The request was not sent.
    UpstreamUnreachable,
    /// 503: the upstream has reached its maximum of concurrent requests. The request was not sent.
    UpstreamBusy {
        /// The name of the upstream.
        upstream: Arc<str>,
        /// The reason in the access log.
        reason: &'static str,
    },
    /// 503: no target of the upstream is usable.
    UpstreamDown {
        /// The name of the upstream.
        upstream: Arc<str>,
    },
    /// 502: the upstream sent an invalid response, or closed the connection before the response.
    BadUpstreamResponse {
        /// Why the gateway did not send the request again.
        not_retried: Option<&'static str>,
    },
    /// 504: the upstream did not start its response in time.
    UpstreamTimedOut {
        /// Why the gateway did not send the request again.
        not_retried: Option<&'static str>,
    },
    /// 504: the deadline of the request has passed (`timeouts.total` or `grpc-timeout`).
    DeadlinePassed,
    /// 500: the gateway or the program around the layer is assembled wrongly.
    Internal,
    /// 500: the handling of the request panicked because of a bug.
    Panicked,
}

/// The reason in the access log if no target of an upstream is usable.
pub const NO_USABLE_TARGET: &str = "no_usable_target";

/// RFC 9457 section 3.1.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    /// The reason in the access log.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The name of the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
}

impl LocalResponse {
    /// Returns the response to a request that is not a gRPC call.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        self.into_response_for(None, HeaderMap::new())
    }

    /// Returns the response to a request with this method and these fields, as a gRPC error if the request is a gRPC
    /// call. The response reuses the allocation of the fields.
    pub fn into_response_to(self, method: &Method, fields: HeaderMap) -> Response<Full<Bytes>> {
        self.into_response_for(GrpcCall::detect(method, &fields), fields)
    }

    /// Returns the response to a gRPC call, or to another request if `call` is `None`. The response reuses the
    /// allocation of the fields.
    pub fn into_response_for(self, call: Option<GrpcCall>, mut fields: HeaderMap) -> Response<Full<Bytes>> {
        fields.clear();
        if let Self::Configured(response) = self {
            return response.into_response(fields);
        }
        if let Some(call) = call {
            return grpc::response(&self, call, fields);
        }
        if let Self::Banned { retry_after, configured: Some(response) } = &self {
            return ConfiguredResponse::ban(response, *retry_after).into_response(fields);
        }
        if let Self::ServiceDenied(response) = self {
            return response.into_response(fields);
        }
        let (status, body) = self.problem();
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        *headers = fields;
        match self {
            Self::Options | Self::Preflight | Self::Authorized => {}
            Self::Quota(_) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            _ => _ = headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json")),
        }
        match &self {
            Self::NotIdentified { fault, accepted, realm } => {
                challenge::add(*fault, *accepted, realm.as_deref(), headers);
            }
            Self::NotAllowed { by_token: true, .. } => challenge::add_insufficient_scope(headers),
            _ => {}
        }
        if self == Self::QuotaMethod {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        let seconds = self.retry_after().map(|seconds| HeaderValue::from_str(itoa::Buffer::new().format(seconds)));
        if let Some(Ok(seconds)) = seconds {
            headers.insert(RETRY_AFTER, seconds);
        }
        response
    }

    /// Returns the trailers that end a gRPC response which has already started.
    pub fn trailers(&self) -> HeaderMap {
        grpc::trailers(self)
    }

    /// Returns the HTTP status of the response.
    pub fn status(&self) -> StatusCode {
        self.status_and_detail().0
    }

    /// Returns the status and the problem details as JSON.
    pub fn problem(&self) -> (StatusCode, Vec<u8>) {
        match self {
            Self::Options | Self::Preflight => return (StatusCode::NO_CONTENT, Vec::new()),
            Self::Authorized => return (StatusCode::OK, Vec::new()),
            Self::Quota(limits) => return (StatusCode::OK, limits.clone()),
            Self::Limited { violated, retry_after } => {
                return (StatusCode::TOO_MANY_REQUESTS, limited::body(violated, *retry_after));
            }
            Self::Busy { by_client, upstream } => {
                return (self.status(), limited::busy_body(*by_client, upstream.as_deref()));
            }
            _ => {}
        }
        let (status, detail) = self.status_and_detail();
        let title = reason::phrase(status); // RFC 9457 section 4.2.1
        let (reason, upstream) = self.failure();
        let kind = "about:blank";
        let problem = Problem { kind, title, status: status.as_u16(), detail: &detail, reason, upstream };
        // The serialization of strings and numbers cannot fail.
        let mut body = serde_json::to_vec(&problem).unwrap_or_default();
        body.push(b'\n'); // for terminals
        (status, body)
    }

    /// Returns the status (RFC 9110 section 15, and RFC 6585 section 4 for 429) and a description of the fault.
    pub fn status_and_detail(&self) -> (StatusCode, Cow<'_, str>) {
        match self {
            Self::BadRequest(cause @ BadRequest::BadField(BadField::Loop)) => {
                (StatusCode::LOOP_DETECTED, cause.to_string().into())
            }
            Self::BadRequest(cause @ BadRequest::Tunnel) => (StatusCode::NOT_IMPLEMENTED, cause.to_string().into()),
            Self::BadRequest(cause) => (StatusCode::BAD_REQUEST, cause.to_string().into()),
            Self::NoClient { limit, claim: Some(claim), .. } => {
                let detail = format!("the token has no usable claim `{claim}`, which identifies clients of `{limit}`");
                (StatusCode::BAD_REQUEST, detail.into())
            }
            Self::NoClient { limit, cause, claim: None } => {
                (StatusCode::BAD_REQUEST, format!("the value that identifies clients of `{limit}` {cause}").into())
            }
            Self::BadCost { limit, cause } => {
                (StatusCode::BAD_REQUEST, format!("the cost of the request for `{limit}` {cause}").into())
            }
            Self::NoBody { limit } => (
                StatusCode::BAD_REQUEST,
                format!("`{limit}` depends on the body of the request, which is unknown").into(),
            ),
            Self::Options | Self::Preflight => (StatusCode::NO_CONTENT, "".into()),
            Self::OriginNotAllowed => (StatusCode::FORBIDDEN, "pages of this origin may not use this resource".into()),
            Self::Quota(_) | Self::Authorized => (StatusCode::OK, "".into()),
            Self::UntrustedProxy => (StatusCode::FORBIDDEN, "only trusted proxies can ask for authorizations".into()),
            Self::BadOriginal(cause) => (StatusCode::BAD_REQUEST, cause.detail().into()),
            Self::Configured(response) => (response.status(), "the rule file configures this response".into()),
            Self::QuotaMethod => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported".into()),
            Self::Malformed => (StatusCode::BAD_REQUEST, "the request is malformed".into()),
            Self::UnknownScheme => {
                (StatusCode::BAD_REQUEST, "the target's scheme is neither `http` nor `https`".into())
            }
            Self::HostMismatch => (StatusCode::BAD_REQUEST, "`host` and `:authority` differ".into()),
            Self::VersionNotSupported => {
                (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0, HTTP/1.1 and HTTP/2 are supported".into())
            }
            Self::Banned { configured, .. } => {
                let status = configured.as_ref().map_or(StatusCode::FORBIDDEN, |response| response.status);
                (status, "this client is banned".into())
            }
            Self::NotIdentified { fault, .. } => (fault.status(), fault.to_string().into()),
            Self::NotAllowed { detail, .. } => (StatusCode::FORBIDDEN, (&**detail).into()),
            Self::ServiceDenied(response) => {
                (response.status(), "the authorization service does not allow this request".into())
            }
            Self::ServiceFailed { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the authorization of the request cannot be checked at present".into(),
            ),
            Self::NoRoute => (StatusCode::NOT_FOUND, "no route matches".into()),
            Self::BodyIncomplete => (StatusCode::BAD_REQUEST, "the request body is malformed or incomplete".into()),
            Self::BodyTooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too long".into()),
            Self::BadBody(fault) => (fault.status(), fault.to_string().into()),
            Self::BodyTimedOut => (StatusCode::REQUEST_TIMEOUT, "the request body was not received in time".into()),
            Self::HeadersTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header fields are too many or too large".into())
            }
            Self::MethodNotImplemented => (StatusCode::NOT_IMPLEMENTED, "this method is not supported".into()),
            Self::CodingNotImplemented => {
                (StatusCode::NOT_IMPLEMENTED, "`chunked` is the only supported transfer coding".into())
            }
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, "the target is too long".into()),
            Self::Limited { retry_after, .. } => {
                (StatusCode::TOO_MANY_REQUESTS, limited::detail(*retry_after, &mut itoa::Buffer::new()).concat().into())
            }
            Self::Busy { by_client: true, .. } => (StatusCode::TOO_MANY_REQUESTS, limited::CLIENT_BUSY.into()),
            Self::Busy { by_client: false, .. } => (StatusCode::SERVICE_UNAVAILABLE, limited::ROUTE_BUSY.into()),
            Self::StoreFailed => (StatusCode::SERVICE_UNAVAILABLE, "quotas cannot be checked at present".into()),
            Self::UpstreamUnreachable => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached".into()),
            Self::UpstreamDown { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "no target of the upstream is usable".into())
            }
            Self::UpstreamBusy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "the upstream is busy".into()),
            Self::BadUpstreamResponse { not_retried } => {
                (StatusCode::BAD_GATEWAY, with_reason("the upstream sent no valid response", *not_retried))
            }
            Self::UpstreamTimedOut { not_retried } => {
                (StatusCode::GATEWAY_TIMEOUT, with_reason("the upstream did not respond in time", *not_retried))
            }
            Self::DeadlinePassed => (StatusCode::GATEWAY_TIMEOUT, "the deadline has passed".into()),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "the gateway is assembled wrongly".into()),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed to handle the request".into()),
        }
    }

    /// Returns the reason if the upstream or the service could not take the request, and the name of the upstream. The name of a
    /// service is its internal URL, which clients do not learn.
    fn failure(&self) -> (Option<&'static str>, Option<&str>) {
        match self {
            Self::UpstreamDown { upstream } => (Some(NO_USABLE_TARGET), Some(upstream)),
            Self::UpstreamBusy { upstream, reason } => (Some(reason), Some(upstream)),
            Self::ServiceFailed { reason } => (Some(reason), None),
            _ => (None, None),
        }
    }

    /// Adds the upstream of the route to the response to a request that `concurrency` rejects.
    pub(crate) fn with_upstream(self, of_route: Option<&Arc<str>>) -> Self {
        match self {
            Self::Busy { by_client, .. } => Self::Busy { by_client, upstream: of_route.cloned() },
            other => other,
        }
    }

    /// Returns the seconds of `Retry-After`.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Limited { retry_after, .. } => *retry_after,
            Self::Banned { retry_after, .. } => Some(*retry_after),
            Self::NotIdentified { fault, .. } if fault.is_temporary() => Some(1),
            // A guess: it is unknown when a request ends.
            Self::StoreFailed | Self::UpstreamBusy { .. } | Self::UpstreamDown { .. } => Some(1),
            Self::ServiceFailed { .. } | Self::Busy { .. } => Some(1),
            _ => None,
        }
    }
}

impl LocalResponse {
    /// Returns the fewest permits that remain in a bucket of the limits that rejected the request.
    pub fn remaining(&self) -> Option<u32> {
        match self {
            Self::Limited { violated, .. } => Some(violated.remaining()),
            _ => None,
        }
    }

    /// Returns the names of the limits that rejected the request.
    pub fn violated(&self) -> Vec<String> {
        match self {
            Self::Limited { violated, .. } => violated.names(),
            Self::Busy { .. } => vec![Concurrency::POLICY.to_owned()],
            _ => Vec::new(),
        }
    }
}

/// Returns a description, and why the request was not sent again.
fn with_reason(detail: &'static str, not_retried: Option<&'static str>) -> Cow<'static, str> {
    not_retried.map_or(detail.into(), |reason| format!("{detail}; not sent again: {reason}").into())
}

impl From<BadRequest> for LocalResponse {
    fn from(cause: BadRequest) -> Self {
        Self::BadRequest(cause)
    }
}

impl From<LimitRejection<'_>> for LocalResponse {
    fn from(LimitRejection { limit, cause, claim }: LimitRejection<'_>) -> Self {
        let limit = limit.to_owned();
        match cause {
            MissingInput::Client(cause) => Self::NoClient { limit, cause, claim: claim.map(str::to_owned) },
            MissingInput::Cost(cause) => Self::BadCost { limit, cause },
            MissingInput::Body => Self::NoBody { limit },
            // Never returned: the limit skips such a request.
            MissingInput::Credentials => Self::Internal,
        }
    }
}
