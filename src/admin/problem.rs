//! Errors of the admin API: `application/problem+json` (RFC 9457).

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::rules::NamedClientError;
use crate::store::StoreError;

/// An error of the API, with a text for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    /// A further member of the JSON.
    member: Option<(&'static str, Value)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), member: None }
    }

    /// Adds a member to the JSON (RFC 9457, section 3.2).
    pub(super) fn with(self, name: &'static str, value: Value) -> Self {
        Self { member: Some((name, value)), ..self }
    }

    /// Creates the error of an invalid request.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns the text for operators.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store did not answer: {error}"))
    }
}

impl From<NamedClientError> for Problem {
    fn from(error: NamedClientError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let mut body = json!({ "status": self.status.as_u16(), "title": title, "detail": self.detail });
        if let Some((name, value)) = self.member {
            body[name] = value;
        }
        let mut response = (self.status, body.to_string()).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
