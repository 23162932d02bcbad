//! Responses that the rule file configures: `bans`, and for a route `redirect`, `respond` and `reject`; and responses of
//! authorization services.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use tidegate_rules::route::{FixedResponse, Redirect, RejectionText};
use tidegate_rules::template::Values;

/// A response of the rule file, or of an authorization service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl ConfiguredResponse {
    /// Creates a response.
    pub fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self { status, headers, body }
    }

    /// Returns a redirect. Returns `None` if the `Location` is too long, or if the request has no host for it.
    pub fn redirect(redirect: &Redirect, values: &Values<'_>) -> Option<Self> {
        let headers = HeaderMap::from_iter([(LOCATION, redirect.location(values)?)]);
        Some(Self { status: redirect.status, headers, body: Bytes::new() })
    }

    /// Returns a fixed response.
    pub fn fixed(response: &FixedResponse) -> Self {
        let mut headers = response.headers.clone();
        if let Some(content_type) = &response.content_type {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        Self { status: response.status, headers, body: Bytes::from_owner(response.body.clone()) }
    }

    /// Returns the response to a banned client.
    pub fn ban(response: &FixedResponse, retry_after: u64) -> Self {
        let mut ban = Self::fixed(response);
        ban.headers.insert(RETRY_AFTER, HeaderValue::from(retry_after));
        ban
    }

    /// Returns the response to a request that limits rejected. Returns `None` if its body is too long.
    pub fn rejection(rejection: &RejectionText, values: &Values<'_>) -> Option<Self> {
        let body = rejection.body.render(values)?.into();
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, rejection.content_type.clone())]);
        headers.extend(values.retry_after.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        Some(Self { status: rejection.status, headers, body })
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the response. Adds its fields to `fields`.
    pub(super) fn into_response(self, mut fields: HeaderMap) -> Response<Full<Bytes>> {
        fields.extend(self.headers);
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = fields;
        response
    }
}
