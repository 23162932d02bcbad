//! The inner service: takes a request that may go on, sends it to its upstream, and brings back the answer.
//!
//! Bodies and trailers stream in both directions at the pace of whoever reads them. What an upstream breaks off in the
//! middle is broken off towards the client, too: nobody takes half an answer for a whole one.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use tower::Service;

mod fields;
mod head;
mod hops;
mod seen;

#[cfg(test)]
mod tests;

use crate::admission::Permit;
use crate::layer::NotSent;
use crate::refusal::Refusal;
use crate::upstream::{Failure, Parcel, RequestBody, ResponseBody, Upstream, Upstreams};

/// The service under the rate limit.
#[derive(Clone, Debug)]
pub struct Forward {
    upstreams: Arc<Upstreams>,
}

/// Who sent a request, for the fields that tell the upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether what it says about others is believed.
    pub(crate) trusted: bool,
}

// === impl Forward ===

impl Forward {
    /// Forwards to these upstreams.
    pub fn new(upstreams: Arc<Upstreams>) -> Self {
        Self { upstreams }
    }

    /// Forwards a request, with the [`Permit`] it was given.
    ///
    /// The head is rewritten in its place, here and now: the future holds no request at all.
    pub fn forward<'a>(
        &'a self,
        parcel: &'a mut Parcel,
        permit: Permit,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send + use<'a> {
        let prepared = self.prepare(parcel.as_mut(), permit);
        async move {
            Ok(match prepared {
                Ok(upstream) => answer(upstream.send(parcel).await),
                Err(here) => *here,
            })
        }
    }

    /// Whom to send it to, or what to answer without.
    fn prepare(
        &self,
        request: Option<&mut Request<RequestBody>>,
        permit: Permit,
    ) -> Result<&Upstream, Box<Response<ResponseBody>>> {
        let Permit { upstream, peer, trusted_peer } = permit; // one permit, one request
        let upstream = upstream.as_deref().and_then(|name| self.upstreams.get(name));
        let (Some(upstream), Some(request)) = (upstream, request) else {
            return Err(Box::new(not_sent(Refusal::Internal)));
        };
        if let Some(here) = answer_here(request) {
            return Err(Box::new(here));
        }
        let peer = Peer { address: peer, trusted: trusted_peer };
        head::request(request, peer).map_err(refused)?;
        Ok(upstream)
    }
}

/// What the client is told.
fn answer(result: Result<Response<ResponseBody>, Failure>) -> Response<ResponseBody> {
    match result {
        Ok(mut response) => match head::response(&mut response) {
            Some(()) => response,
            None => refused(Refusal::UpstreamBroken),
        },
        Err(Failure::Unreachable) => not_sent(Refusal::UpstreamUnreachable),
        Err(Failure::TimedOut) => refused(Refusal::UpstreamTimedOut),
        Err(Failure::Broken) => refused(Refusal::UpstreamBroken),
        Err(Failure::ClientStalled) => refused(Refusal::BodyTimedOut),
        Err(Failure::ClientBroken) => refused(Refusal::BodyBroken),
    }
}

/// Forwards a request that carries its [`Permit`] in its extensions, and no other.
impl Service<Request<RequestBody>> for Forward {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let forward = self.clone();
        let permit = request.extensions_mut().remove::<Permit>();
        Box::pin(async move {
            let mut parcel = Some(request);
            match permit {
                Some(permit) => forward.forward(&mut parcel, permit).await,
                None => Ok(not_sent(Refusal::Internal)),
            }
        })
    }
}

/// Answers what is meant for the gateway itself, and lets the rest pass.
fn answer_here(request: &mut Request<RequestBody>) -> Option<Response<ResponseBody>> {
    // A tunnel would go around every rule; and TRACE would show a client the fields that others added for it.
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Some(refused(Refusal::MethodNotImplemented));
    }
    let is_options = *request.method() == Method::OPTIONS;
    let is_last = is_options && (request.uri().path() == "*" || !may_go_further(request.headers_mut()));
    is_last.then(options)
}

/// RFC 9110 section 7.6.2: counts `Max-Forwards` down, and says no at its end. Nonsense is as good as absent.
fn may_go_further(headers: &mut HeaderMap) -> bool {
    let Some(value) = headers.get(header::MAX_FORWARDS) else { return true };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse::<u64>().ok()) {
        Some(0) => false,
        Some(left) => {
            headers.insert(header::MAX_FORWARDS, HeaderValue::from(left - 1));
            true
        }
        None => true,
    }
}

/// Nothing special is on offer here.
fn options() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(Full::new(Bytes::new())));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn refused(refusal: Refusal) -> Response<ResponseBody> {
    refusal.into_response().map(ResponseBody::from)
}

fn not_sent(refusal: Refusal) -> Response<ResponseBody> {
    let mut response = refused(refusal);
    response.extensions_mut().insert(NotSent);
    response
}
