//! The HTTP client of the exporter. Plaintext only.

use std::future::Future;
use std::pin::Pin;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry_http::{Bytes, HttpClient, HttpError};

use crate::upstream::HostLookup;
use crate::upstream::http_client::send;

/// Maximum size of a response of the collector, in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// A client that only looks up hosts: the exporter sets the URL and the fields.
#[derive(Debug)]
pub(super) struct CollectorClient(pub(super) HostLookup);

type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for CollectorClient {
    fn send_bytes<'this, 'call>(&'this self, request: Request<Bytes>) -> SendFuture<'call>
    where
        'this: 'call,
        Self: 'call,
    {
        Box::pin(async {
            let (head, body) = send(request.map(Full::new), None, &self.0).await?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        })
    }
}
