//! Custom responses to requests that the layer rejects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{Entry, RETRY_AFTER};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;

use super::record::RequestRecord;
use crate::local_response::{GrpcCall, LocalResponse};

/// A request that the layer rejects, for the hook of
/// [`RateLimitLayerBuilder::on_reject`](super::RateLimitLayerBuilder::on_reject).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rejection<'a> {
    /// The status of the layer's own response, such as 429 if limits rejected the request, 503 if the store failed, 400
    /// if the request does not identify the client of a limit, or 404 if no route matches.
    pub status: StatusCode,
    /// The reason, as an English text.
    pub detail: &'a str,
    /// The route; `None` if the request has none.
    pub route: Option<&'a str>,
    /// The limits that rejected the request; empty unless `status` is 429.
    pub limits: &'a [String],
    /// The time after which the same request can be admitted, in whole seconds. `None` if the time is unknown, or if
    /// the request can never be admitted.
    pub retry_after: Option<Duration>,
    /// The fewest permits that remain in a bucket of `limits`. `None` unless limits rejected the request.
    pub remaining: Option<u32>,
    /// The value of `RateLimit-Policy`. `None` if the response has no such field.
    pub policy: Option<&'a HeaderValue>,
    /// The request's method.
    pub method: &'a Method,
    /// The request's target.
    pub uri: &'a Uri,
    /// The request's header fields.
    pub headers: &'a HeaderMap,
    /// The request's extensions, such as the user that your service has identified.
    pub extensions: &'a Extensions,
}

/// Makes the response to a rejected request.
#[derive(Clone)]
pub(super) struct RejectHook(Arc<Hook>);

type Hook = dyn Fn(Rejection<'_>) -> Response<Full<Bytes>> + Send + Sync;

impl RejectHook {
    pub(super) fn new<B: Into<Bytes>>(hook: impl Fn(Rejection<'_>) -> Response<B> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |rejection| hook(rejection).map(|body| Full::new(body.into()))))
    }

    /// Calls the hook. Returns `None` for gRPC calls, which need the layer's own response, for a 204 to `OPTIONS *`,
    /// and for responses of the rule file.
    pub(super) fn response<B>(
        &self,
        local_response: &LocalResponse,
        request: &Request<B>,
        record: &RequestRecord<'_>,
    ) -> Option<Response<Full<Bytes>>> {
        let (status, detail) = local_response.status_and_detail();
        let is_configured = matches!(local_response, LocalResponse::Configured(_));
        if is_configured || status.is_success() || GrpcCall::detect(request.method(), request.headers()).is_some() {
            return None;
        }
        let (seconds, policy) = (local_response.retry_after(), record.policy());
        let mut response = self.0(Rejection {
            status,
            detail: &detail,
            route: record.route().map(|route| &*route.name),
            limits: &local_response.violated(),
            retry_after: seconds.map(Duration::from_secs),
            remaining: local_response.remaining(),
            policy: policy.as_ref(),
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        });
        if let (Some(seconds), Entry::Vacant(field)) = (seconds, response.headers_mut().entry(RETRY_AFTER)) {
            field.insert(seconds.into());
        }
        Some(response)
    }
}

impl fmt::Debug for RejectHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RejectHook")
    }
}
