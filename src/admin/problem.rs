//! Errors of the admin API: `application/problem+json` (RFC 9457).

use std::collections::BTreeMap;

use axum::Json;
use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response as DocumentedResponse, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use tidegate_rules::rules::NamedClientError;
use tidegate_store::StoreError;

/// An error of the API, with a text for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    /// A further member of the JSON.
    member: Option<(&'static str, Value)>,
}

/// The body of an error (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody {
    /// Always `about:blank`: the status has the type of the error.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The meaning of the status.
    title: &'static str,
    /// The status code.
    status: u16,
    /// A text for operators.
    detail: String,
    /// Further members, such as the `errors` of a rule file.
    #[serde(flatten)]
    members: serde_json::Map<String, Value>,
}

/// The media type of errors.
const MEDIA_TYPE: &str = "application/problem+json";

/// The longest text of an error of an extractor, in bytes.
const MAX_DETAIL: usize = 4096;

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
        let Self { status, detail, member } = self;
        let members = member.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let title = status.canonical_reason().unwrap_or_default();
        let body = ProblemBody { kind: "about:blank", title, status: status.as_u16(), detail, members };
        let mut response = (status, Json(body)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Turns the errors of extractors into problems.
pub(super) async fn into_problem(response: Response) -> Response {
    let (status, kind) = (response.status(), response.headers().get(CONTENT_TYPE));
    if !status.is_client_error() && !status.is_server_error() || kind.is_some_and(|kind| kind == MEDIA_TYPE) {
        return response;
    }
    let (head, body) = response.into_parts();
    let text = to_bytes(body, MAX_DETAIL).await.unwrap_or_default();
    let mut problem = Problem::new(status, String::from_utf8_lossy(&text)).into_response();
    if let Some(allow) = head.headers.get(ALLOW) {
        problem.headers_mut().insert(ALLOW, allow.clone());
    }
    problem
}

/// The errors that every operation of the API can return.
impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<DocumentedResponse>> {
        let response = |description: &str| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            ResponseBuilder::new().description(description).content(MEDIA_TYPE, content).build().into()
        };
        let responses =
            [("4XX", response("The request is rejected.")), ("5XX", response("The gateway cannot answer."))];
        responses.map(|(status, response)| (status.to_owned(), response)).into()
    }
}
