//! Errors over HTTP: `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use http::header::{ALLOW, CONTENT_TYPE, ORIGIN, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::bad_call::BadCall;
use super::response_body::CallBody;
use tidegate_layer::headers::retry_after;
use tidegate_layer::layer::take::TakeError;
use tidegate_limit::Wait;

/// An error.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
    help: Option<&'static str>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Serialize)]
struct Body<'p> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'static str>,
}

const NAMES: &str = "a limit is `ROUTE/LIMIT`, `DOMAIN/LIMIT`, or `@/LIMIT` for one that routes share";
const APART: &str = "in a Redis Cluster, all limits must belong to one route or to one domain, and no limit may have shards: \
                     leave out `id`, or send several requests";
const OTHER_ID: &str = "send another `id` with each new request";
const CLIENTS: &str =
    "`client` has a value for each source of the limit's client, in order, and is absent for an OVERALL limit";

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), help: None, fields: Vec::new() }
    }

    /// Creates the error of an invalid body.
    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Creates the error of a path without this method.
    pub(super) fn method_not_allowed(allowed: &'static str) -> Self {
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method");
        problem.with_field(ALLOW, HeaderValue::from_static(allowed))
    }

    /// Rejects a request of a web page, which has a field that only browsers send. A page could otherwise use up limits on the
    /// machine of its reader.
    ///
    /// # Errors
    /// A page sends the request.
    pub(super) fn reject_page(fields: &HeaderMap) -> Result<(), Self> {
        match fields.contains_key(ORIGIN) {
            true => Err(Self::new(StatusCode::FORBIDDEN, "requests of web pages are not accepted")),
            false => Ok(()),
        }
    }

    /// Adds an advice.
    pub(super) fn with_help(self, help: &'static str) -> Self {
        Self { help: Some(help), ..self }
    }

    /// Adds a field to the response.
    pub(super) fn with_field(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.fields.push((name, value));
        self
    }

    /// Returns the text.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the response.
    pub(super) fn into_response(self) -> Response<CallBody> {
        let Self { status, detail, help, fields } = self;
        let title = status.canonical_reason().unwrap_or_default();
        let body = Body { kind: "about:blank", title, status: status.as_u16(), detail: &detail, help };
        // The serialization of texts and numbers cannot fail.
        let mut json = serde_json::to_vec(&body).unwrap_or_default();
        json.push(b'\n'); // for terminals
        let mut response = Response::new(CallBody::new(json));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response.headers_mut().extend(fields);
        response
    }
}

impl From<BadCall> for Problem {
    fn from(error: BadCall) -> Self {
        Self::new(error.http_status(), error.to_string())
    }
}

impl From<TakeError> for Problem {
    fn from(error: TakeError) -> Self {
        let (status, help, wait) = match &error {
            TakeError::NoLimit(_) => (StatusCode::NOT_FOUND, Some(NAMES), None),
            TakeError::Client { .. } => (StatusCode::BAD_REQUEST, Some(CLIENTS), None),
            TakeError::Permits { .. } | TakeError::Twice(_) => (StatusCode::BAD_REQUEST, None, None),
            TakeError::Apart => (StatusCode::BAD_REQUEST, Some(APART), None),
            TakeError::OtherRequest => (StatusCode::CONFLICT, Some(OTHER_ID), None),
            TakeError::Returned => (StatusCode::CONFLICT, Some(OTHER_ID), None),
            TakeError::Banned { millis } => (StatusCode::FORBIDDEN, None, Some(Wait::Millis(*millis))),
            // A guess, as for requests.
            TakeError::NoCapacity | TakeError::StoreFailed(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, None, Some(Wait::Millis(1_000)))
            }
        };
        let problem = Self { help, ..Self::new(status, error.to_string()) };
        match wait.and_then(retry_after) {
            Some(seconds) => problem.with_field(RETRY_AFTER, seconds.into()),
            None => problem,
        }
    }
}
