//! The inner service: takes a request that may go on, sends it to its upstream, and brings back the answer.
//!
//! Bodies and trailers stream in both directions, with backpressure. An answer that its upstream cuts off is cut off towards
//! the client too, so that half an answer is never taken for a whole one.

use std::convert::Infallible;
use std::future::Future;
use std::mem::take;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, Version};
use tower::Service;

mod fields;
mod head;
mod here;

#[cfg(test)]
mod tests;

use self::head::Judged;
pub(crate) use self::head::response as rewrite_answer;
use crate::layer::{Handover, NotSent};
use crate::refusal::Refusal;
use crate::sift::{Field, Seen};
use crate::upstream::{Client, Failure, RequestBody, ResponseBody, TooLong, Upstream, Upstreams};

/// The service under the rate limit.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    upstreams: Arc<Upstreams>,
}

/// Who sent a request, for the fields that tell the upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether what it says about others is believed.
    pub(crate) trusted: bool,
}

/// A request whose head is ready for its upstream.
#[derive(Debug)]
pub(crate) struct Ready<'u> {
    upstream: &'u Upstream,
    /// Whose share of the upstream's connections it uses.
    client: Client,
    /// Whether the client reads trailers behind the answer.
    takes_trailers: bool,
}

// === impl Forward ===

impl Forward {
    /// Forwards to these upstreams.
    pub(crate) fn new(upstreams: Arc<Upstreams>) -> Self {
        Self { upstreams }
    }

    /// Rewrites the head for the upstream; or says what to answer without it.
    pub(crate) fn prepare(&self, request: &mut Request<RequestBody>) -> Result<Ready<'_>, Box<Response<ResponseBody>>> {
        let handover = request.extensions_mut().remove::<Handover>(); // one permit, one request
        let Some(handover) = handover else { return Err(Box::new(not_sent(Refusal::Internal))) };
        let Handover { upstream, peer, trusted_peer, client, max_body, seen, sieve, .. } = handover;
        let upstream = upstream.as_deref().and_then(|name| self.upstreams.get(name));
        let Some(upstream) = upstream else { return Err(Box::new(not_sent(Refusal::Internal))) };
        if let Some(here) = here::answer(request) {
            return Err(Box::new(here));
        }
        let takes_trailers = takes_trailers(request.version(), seen);
        let peer = Peer { address: peer, trusted: trusted_peer };
        head::request(request, Judged { peer, seen, sieve: sieve.as_deref(), upstream: upstream.host() })
            .map_err(refused)?;
        request.body_mut().sift(sieve);
        request.body_mut().limit(max_body).map_err(|TooLong| refused(Refusal::BodyTooLong))?;
        Ok(Ready { upstream, client, takes_trailers })
    }
}

/// Forwards a request that carries its [`Handover`] in its extensions, and no other.
impl Service<Request<RequestBody>> for Forward {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let forward = self.clone();
        // Written in line: a future within this one would have room for the request once more.
        Box::pin(async move {
            let Ready { upstream, client, takes_trailers } = match forward.prepare(&mut request) {
                Ok(ready) => ready,
                Err(here) => return Ok(*here),
            };
            let mut response = answer(upstream.send(&mut request, client).await, takes_trailers);
            response.extensions_mut().extend(take(request.extensions_mut())); // its room is used for the next request
            Ok(response)
        })
    }
}

/// Whether the client reads trailers behind an answer: it has said so, or speaks a version in which all do.
fn takes_trailers(version: Version, seen: Seen) -> bool {
    version == Version::HTTP_2 || (version == Version::HTTP_11 && seen.has(Field::TakesTrailers))
}

/// What the client is told.
fn answer(result: Result<Response<ResponseBody>, Failure>, takes_trailers: bool) -> Response<ResponseBody> {
    match result {
        Ok(mut response) => match head::response(&mut response, takes_trailers) {
            Some(()) => response,
            None => refused(Refusal::UpstreamBroken),
        },
        Err(Failure::Unreachable) => not_sent(Refusal::UpstreamUnreachable),
        Err(Failure::QueueFull | Failure::QueueTimedOut) => not_sent(Refusal::UpstreamBusy),
        Err(Failure::TimedOut) => refused(Refusal::UpstreamTimedOut),
        Err(Failure::Broken) => refused(Refusal::UpstreamBroken),
        Err(Failure::ClientStalled) => refused(Refusal::BodyTimedOut),
        Err(Failure::ClientBroken) => refused(Refusal::BodyBroken),
        Err(Failure::ClientTooLong) => refused(Refusal::BodyTooLong),
    }
}

fn refused(refusal: Refusal) -> Response<ResponseBody> {
    refusal.into_response().map(ResponseBody::from)
}

fn not_sent(refusal: Refusal) -> Response<ResponseBody> {
    let mut response = refused(refusal);
    response.extensions_mut().insert(NotSent);
    response
}
