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

use http::{Request, Response, Version};
use tower::Service;

mod fields;
mod head;
mod here;

#[cfg(test)]
mod tests;

use self::head::Judged;
pub(crate) use self::head::response as rewrite_answer;
use crate::admission::Permit;
use crate::layer::NotSent;
use crate::refusal::Refusal;
use crate::sift::Field;
use crate::upstream::{Failure, Parcel, RequestBody, ResponseBody, TooLong, Upstream, Upstreams};

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
        let client = permit.client;
        let takes_trailers = parcel.as_ref().is_some_and(|request| takes_trailers(request.version(), &permit));
        let prepared = self.prepare(parcel.as_mut(), permit);
        async move {
            Ok(match prepared {
                Ok(upstream) => answer(upstream.send(parcel, client).await, takes_trailers),
                Err(here) => *here,
            })
        }
    }

    /// Whom to send it to, or what to answer without.
    pub(crate) fn prepare(
        &self,
        request: Option<&mut Request<RequestBody>>,
        permit: Permit,
    ) -> Result<&Upstream, Box<Response<ResponseBody>>> {
        let Permit { upstream, peer, trusted_peer, max_body, seen, sieve, .. } = permit; // one permit, one request
        let upstream = upstream.as_deref().and_then(|name| self.upstreams.get(name));
        let (Some(upstream), Some(request)) = (upstream, request) else {
            return Err(Box::new(not_sent(Refusal::Internal)));
        };
        if let Some(here) = here::answer(request) {
            return Err(Box::new(here));
        }
        let peer = Peer { address: peer, trusted: trusted_peer };
        head::request(request, Judged { peer, seen, sieve: sieve.as_deref(), upstream: upstream.host() })
            .map_err(refused)?;
        request.body_mut().sift(sieve);
        request.body_mut().limit(max_body).map_err(|TooLong| refused(Refusal::BodyTooLong))?;
        Ok(upstream)
    }
}

/// Whether the client reads trailers behind an answer: it has said so, or speaks a version in which all do.
fn takes_trailers(version: Version, permit: &Permit) -> bool {
    version == Version::HTTP_2 || (version == Version::HTTP_11 && permit.seen.has(Field::TakesTrailers))
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

fn refused(refusal: Refusal) -> Response<ResponseBody> {
    refusal.into_response().map(ResponseBody::from)
}

fn not_sent(refusal: Refusal) -> Response<ResponseBody> {
    let mut response = refused(refusal);
    response.extensions_mut().insert(NotSent);
    response
}
