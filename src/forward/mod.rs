//! The inner service: takes a request that may go on, sends it to its upstream, and brings back the answer.
//!
//! Bodies and trailers stream in both directions, with backpressure. An answer that its upstream cuts off is cut off
//! towards the client too, so that half an answer is never taken for a whole one.

use std::convert::Infallible;
use std::future::Future;
use std::mem::take;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response, Version};
use tower::Service;

mod deadline;
mod fields;
mod head;
mod max_forwards;
mod upgrade;
mod websocket;

#[cfg(test)]
mod tests;

use self::deadline::Deadline;
use self::head::ForwardInput;
pub(crate) use self::head::response as rewrite_answer;
use self::upgrade::ExtendedConnect;
use crate::boxed::boxed;
use crate::layer::{ForwardContext, NotSent};
use crate::local_response::{GrpcCall, LocalResponse};
use crate::metrics::AttemptOutcome;
use crate::sanitize::{FieldKind, FieldKinds};
use crate::upgrade::is_tunnel;
use crate::upstream::{
    Client, HeadlessResponse, RequestBody, ResponseBody, TooLong, Trace, Upstream, UpstreamError, Upstreams,
};

/// The reason in the access log where the deadline of a call has passed.
const DEADLINE_PASSED: &str = "deadline_passed";

/// The service under the rate limit.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    upstreams: Arc<Upstreams>,
}

/// Who sent a request, for the fields that tell the upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardPeer {
    pub(crate) address: IpAddr,
    /// Whether what it says about others is believed.
    pub(crate) trusted: bool,
    /// Whether it speaks TLS with us.
    pub(crate) over_tls: bool,
}

/// A request whose head is ready for its upstream.
#[derive(Debug)]
pub(crate) struct PreparedRequest<'u> {
    upstream: &'u Upstream,
    /// Whose share of the upstream's connections it uses.
    client: Client,
    /// What becomes of it is told in the words of gRPC, if it is a call.
    call: Option<GrpcCall>,
    deadline: Deadline,
    /// Whether the client reads trailers behind the answer.
    takes_trailers: bool,
    /// Boxed, as few requests are one.
    connect: Option<Box<ExtendedConnect>>,
    /// The record for the access log, if it is on.
    trace: Option<Trace>,
}

// === impl Forward ===

impl Forward {
    /// Forwards to these upstreams.
    pub(crate) fn new(upstreams: Arc<Upstreams>) -> Self {
        Self { upstreams }
    }

    /// Rewrites the head for the upstream; or says what to answer without it.
    pub(crate) fn prepare(
        &self,
        request: &mut Request<RequestBody>,
    ) -> Result<PreparedRequest<'_>, Box<Response<ResponseBody>>> {
        let call = GrpcCall::detect(request.method(), request.headers());
        let context = request.extensions_mut().remove::<ForwardContext>(); // one permit, one request
        let trace = request.extensions_mut().remove::<Trace>();
        let Some(context) = context else { return Err(Box::new(not_sent(LocalResponse::Internal, call))) };
        let ForwardContext {
            upstream,
            peer,
            trusted_peer,
            over_tls,
            client,
            max_body,
            kinds,
            field_filter,
            upgrade,
            ..
        } = context;
        let upstream = upstream.as_deref().and_then(|name| self.upstreams.get(name));
        let Some(upstream) = upstream else { return Err(Box::new(not_sent(LocalResponse::Internal, call))) };
        if let Some(here) = max_forwards::answer(request) {
            return Err(Box::new(here));
        }
        let upgrade = upgrade.filter(|_| upstream.can_upgrade());
        let is_connect = is_tunnel(request);
        if is_connect && upgrade.is_none() {
            // The layer has rejected it, unless the upstream is not that of the rules. It stays charged.
            return Err(Box::new(refused(LocalResponse::MethodNotImplemented, call)));
        }
        let takes_trailers = takes_trailers(request.version(), kinds);
        let peer = ForwardPeer { address: peer, trusted: trusted_peer, over_tls };
        head::request(
            request,
            ForwardInput { peer, kinds, field_filter: field_filter.as_deref(), upstream: upstream.default_host() },
        )
        .map_err(|local_response| refused(local_response, call))?;
        request.body_mut().filter_trailers(field_filter);
        request.body_mut().limit(max_body).map_err(|TooLong| refused(LocalResponse::BodyTooLong, call))?;
        let connect = upgrade.and_then(|upgrade| upgrade::offer(request, *upgrade, is_connect));
        let deadline = Deadline::of(call, request.headers());
        Ok(PreparedRequest { upstream, client, call, deadline, takes_trailers, connect, trace })
    }
}

/// Forwards a request that carries its [`ForwardContext`] in its extensions, and no other.
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
        boxed(|| async move {
            let PreparedRequest { upstream, client, call, mut deadline, takes_trailers, connect, trace } =
                match forward.prepare(&mut request) {
                    Ok(ready) => ready,
                    Err(here) => return Ok(*here),
                };
            let sent = deadline.before(pin!(upstream.send(&mut request, client, trace.as_ref()))).await;
            let mut response = match sent {
                Some(Ok(answer)) => whole(answer, &mut request, call, takes_trailers, trace.as_ref()),
                Some(Err(failure)) => failed(failure, call),
                None => {
                    upstream.record_timeout();
                    note(trace.as_ref(), DEADLINE_PASSED);
                    refused(LocalResponse::DeadlinePassed, call)
                }
            };
            deadline.bound(&mut response, call, takes_trailers);
            if let Some(connect) = connect {
                response = connect.judge(response, || note(trace.as_ref(), AttemptOutcome::InvalidResponse.as_str()));
            }
            response.extensions_mut().extend(take(request.extensions_mut())); // its room is used for the next request
            Ok(response)
        })
    }
}

/// Whether the client reads trailers behind an answer: it has said so, or speaks a version in which all do.
fn takes_trailers(version: Version, kinds: FieldKinds) -> bool {
    version == Version::HTTP_2 || (version == Version::HTTP_11 && kinds.has(FieldKind::AcceptsTrailers))
}

/// What the client is told of what the upstream says.
fn whole(
    answer: HeadlessResponse,
    request: &mut Request<RequestBody>,
    call: Option<GrpcCall>,
    takes_trailers: bool,
    trace: Option<&Trace>,
) -> Response<ResponseBody> {
    let mut response = answer.into_response(request);
    match head::response(&mut response, takes_trailers) {
        Some(()) => response,
        None => {
            note(trace, AttemptOutcome::InvalidResponse.as_str());
            refused(LocalResponse::BadUpstreamResponse, call)
        }
    }
}

/// Records for the access log why the upstream's response is replaced.
fn note(trace: Option<&Trace>, reason: &'static str) {
    if let Some(trace) = trace {
        trace.record_failure(reason);
    }
}

/// What it is told where the upstream says nothing.
fn failed(failure: UpstreamError, call: Option<GrpcCall>) -> Response<ResponseBody> {
    match failure {
        UpstreamError::Unreachable => not_sent(LocalResponse::UpstreamUnreachable, call),
        // It stays charged: each attempt costs a handshake.
        UpstreamError::CannotSwitch => refused(LocalResponse::UpstreamUnreachable, call),
        UpstreamError::QueueFull | UpstreamError::QueueTimedOut => not_sent(LocalResponse::UpstreamBusy, call),
        UpstreamError::TimedOut => refused(LocalResponse::UpstreamTimedOut, call),
        UpstreamError::Broken => refused(LocalResponse::BadUpstreamResponse, call),
        UpstreamError::ClientStalled => refused(LocalResponse::BodyTimedOut, call),
        UpstreamError::ClientBroken => refused(LocalResponse::BodyIncomplete, call),
        UpstreamError::ClientTooLong => refused(LocalResponse::BodyTooLong, call),
    }
}

fn refused(local_response: LocalResponse, call: Option<GrpcCall>) -> Response<ResponseBody> {
    local_response.into_response_for(call, HeaderMap::new()).map(ResponseBody::from)
}

fn not_sent(local_response: LocalResponse, call: Option<GrpcCall>) -> Response<ResponseBody> {
    let mut response = refused(local_response, call);
    response.extensions_mut().insert(NotSent);
    response
}
