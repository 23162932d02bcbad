//! The service below the rate limit layer: forwards an admitted request to its upstream and returns the response.
//!
//! Bodies and trailers stream in both directions, with backpressure. If an upstream breaks off a response, the gateway
//! also breaks off the response to the client, so that the client does not take it for complete.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::mem::take;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, Version};
use tower::Service;

mod compress;
mod deadline;
mod fields;
mod head;
mod max_forwards;
mod meter;
mod responses;
mod upgrade;
mod websocket;

#[cfg(test)]
mod tests;

pub(crate) use self::compress::Encoder;
use self::compress::ResponseCompression;
use self::deadline::Deadline;
use self::head::ForwardInput;
pub(crate) use self::head::response as rewrite_response;
use self::responses::ResponseRewrite;
use self::upgrade::ExtendedConnect;
use crate::upstream::{
    Client, HeadlessResponse, NotRetried, RequestBody, ResponseBody, SendError, TooLong, Trace, Upstream,
    UpstreamError, Upstreams,
};
use tidegate_layer::layer::{ForwardContext, NotSent, RouteUpstream, WorkerUpstreams};
use tidegate_layer::local_response::{GrpcCall, LocalResponse};
use tidegate_layer::metering::Metering;
use tidegate_limit::boxed::boxed;
use tidegate_metrics::AttemptOutcome;
use tidegate_rules::request::facts::grpc_timeout::Received;
use tidegate_rules::request::sanitize::{FieldKind, FieldKinds};
use tidegate_rules::route::upgrade::is_tunnel;

/// The reason in the access log if the deadline of a call has passed.
const DEADLINE_PASSED: &str = "deadline_passed";

/// The service that forwards requests.
#[derive(Clone, Debug)]
pub struct Forward;

/// The peer that sent a request, for `X-Forwarded-*`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardPeer {
    pub(crate) address: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub(crate) trusted: bool,
    /// Whether the peer's connection uses TLS.
    pub(crate) over_tls: bool,
}

/// A request whose head is ready for its upstream.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    upstream: Arc<Upstream>,
    /// The client whose share of the upstream's connections the request uses.
    client: Client,
    /// The kind of gRPC call, if it is one. Errors are then gRPC errors.
    call: Option<GrpcCall>,
    deadline: Deadline,
    /// Whether the client accepts trailers.
    accepts_trailers: bool,
    /// Boxed, because few requests are an extended CONNECT.
    connect: Option<Box<ExtendedConnect>>,
    /// Boxed, because few routes have one.
    response_rewrite: Option<Box<ResponseRewrite>>,
    /// Boxed, because few routes have one.
    compression: Option<Box<ResponseCompression>>,
    /// The reservations of a request whose cost is known only after the response.
    metering: Option<Arc<Metering>>,
    /// The record for the access log, if it is enabled.
    trace: Option<Trace>,
}

// === impl Forward ===

impl Forward {
    /// Rewrites the head of a request for its upstream.
    ///
    /// # Errors
    /// The gateway's own response to a request that is not forwarded.
    pub(crate) fn prepare(request: &mut Request<RequestBody>) -> Result<PreparedRequest, Box<Response<ResponseBody>>> {
        let call = GrpcCall::detect(request.method(), request.headers());
        // Removed, so that one permit serves one request.
        let context = request.extensions_mut().remove::<ForwardContext>();
        let trace = request.extensions_mut().remove::<Trace>();
        let Some(mut context) = context else { return Err(Box::new(not_sent(LocalResponse::Internal, call))) };
        let Some(upstream) = context.upstream.take().and_then(own_upstream) else {
            return Err(Box::new(not_sent(LocalResponse::Internal, call)));
        };
        let total = upstream.total_timeout().into_iter().chain(context.timeout).min();
        let may_have_deadline = total.is_some() || call.is_some();
        let received = may_have_deadline.then(|| request.extensions_mut().remove::<Received>()).flatten();
        if let Some(response) = max_forwards::respond(request) {
            return Err(Box::new(response));
        }
        let metering = context.metering.take();
        let upgrade = context.upgrade.take().filter(|_| upstream.can_upgrade());
        let is_connect = is_tunnel(request);
        if is_connect && upgrade.is_none() {
            // The layer rejects this before, unless the upstream supports HTTP/2 only. The request stays charged.
            return Err(Box::new(local_response(LocalResponse::MethodNotImplemented, call)));
        }
        let accepts_trailers = accepts_trailers(request.version(), context.kinds);
        let client = context.client;
        let compression = context.compression.take().filter(|_| call.is_none() && upgrade.is_none());
        let compression = compression.map(|compression| ResponseCompression::new(compression, request));
        let response_rewrite =
            rewrite_request(request, context, &upstream).map_err(|response| local_response(response, call))?;
        let connect = upgrade.and_then(|upgrade| upgrade::offer(request, *upgrade, is_connect));
        let deadline = Deadline::new(request, received, total, call);
        Ok(PreparedRequest {
            upstream,
            client,
            call,
            deadline,
            accepts_trailers,
            connect,
            response_rewrite,
            compression,
            metering,
            trace,
        })
    }
}

/// Forwards only requests with a [`ForwardContext`] in their extensions.
impl Service<Request<RequestBody>> for Forward {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        // Inline: another async function would store the request a second time in its future.
        boxed(|| async move {
            let mut prepared = match Self::prepare(&mut request) {
                Ok(prepared) => prepared,
                Err(response) => return Ok(*response),
            };
            // A request that has waited too long for its permits is not sent.
            let PreparedRequest { upstream, client, deadline, trace, metering, .. } = &mut prepared;
            metering.iter().for_each(|metering| metering.record_sent());
            let result = match deadline.has_passed() {
                false => deadline.run_until(pin!(upstream.send(&mut request, client, trace.as_ref()))).await,
                true => None,
            };
            let mut response = prepared.into_response(result, &mut request);
            // The server reuses the memory of the request's extensions for the next request.
            response.extensions_mut().extend(take(request.extensions_mut()));
            Ok(response)
        })
    }
}

// === impl PreparedRequest ===

impl PreparedRequest {
    /// Returns the response for the client. Without a `result`, the deadline has passed.
    fn into_response(
        self,
        result: Option<Result<HeadlessResponse, SendError>>,
        request: &mut Request<RequestBody>,
    ) -> Response<ResponseBody> {
        let (call, trace) = (self.call, self.trace.as_ref());
        let is_forwarded = matches!(result, Some(Ok(_))) && self.connect.is_none();
        let mut response = match result {
            Some(Ok(response)) => rewrite_upstream_response(response, request, call, self.accepts_trailers, trace),
            Some(Err(error)) => error_response(error, call, &self.upstream),
            None => self.deadline_response(request),
        };
        if let Some(rewrite) = self.response_rewrite.filter(|_| is_forwarded) {
            rewrite.apply(response.headers_mut(), &self.upstream);
        }
        if let Some(metering) = self.metering {
            meter::meter(&mut response, metering, is_forwarded);
        }
        if let Some(compression) = self.compression.filter(|_| is_forwarded) {
            compression.apply(&mut response);
        }
        if is_forwarded && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.deadline.limit_body(&mut response, call, self.accepts_trailers);
        }
        match self.connect {
            Some(connect) => connect.check_response(response, || {
                record_failure(trace, AttemptOutcome::InvalidResponse.as_str());
            }),
            None => response,
        }
    }

    /// Returns the response to a request whose deadline has passed, and records this.
    fn deadline_response(&self, request: &Request<RequestBody>) -> Response<ResponseBody> {
        self.upstream.record_timeout();
        record_failure(self.trace.as_ref(), DEADLINE_PASSED);
        // A client could choose deadlines that always pass before its requests are sent.
        match request.body().was_sent() || self.deadline.is_of_client() {
            true => local_response(LocalResponse::DeadlinePassed, self.call),
            false => not_sent(LocalResponse::DeadlinePassed, self.call),
        }
    }
}

impl RouteUpstream for Upstream {
    fn total_timeout(&self) -> Option<Duration> {
        self.total_timeout()
    }
}

/// Returns a function that finds an upstream in the upstreams of each worker, for the layer.
pub fn find_in(workers: &[Upstreams]) -> impl Fn(&str) -> WorkerUpstreams {
    |name| workers.iter().filter_map(|upstreams| Some(Arc::clone(upstreams.get(name)?) as _)).collect()
}

/// Returns the upstream of the gateway that the layer passes on.
fn own_upstream(upstream: Arc<dyn RouteUpstream>) -> Option<Arc<Upstream>> {
    let upstream: Arc<dyn Any + Send + Sync> = upstream;
    upstream.downcast().ok()
}

/// Returns `true` if the client accepts trailers: with `TE: trailers`, or because it uses HTTP/2.
fn accepts_trailers(version: Version, kinds: FieldKinds) -> bool {
    version == Version::HTTP_2 || (version == Version::HTTP_11 && kinds.has(FieldKind::AcceptsTrailers))
}

/// Rewrites the head of a request for its upstream, and filters and limits its body. Returns the changes of the
/// response.
///
/// # Errors
/// The request is ambiguous, or its body is too long.
fn rewrite_request(
    request: &mut Request<RequestBody>,
    context: ForwardContext,
    upstream: &Upstream,
) -> Result<Option<Box<ResponseRewrite>>, LocalResponse> {
    let ForwardContext { peer, trusted_peer, over_tls, max_body, kinds, field_filter, fields, rewrite, .. } = context;
    let peer = ForwardPeer { address: peer, trusted: trusted_peer, over_tls };
    let default_host = upstream.default_host();
    head::request(request, ForwardInput { peer, kinds, field_filter: field_filter.as_deref(), default_host })?;
    let response_rewrite = rewrite.and_then(|rewrite| {
        head::rewrite_host(request, &rewrite.host, default_host);
        ResponseRewrite::new(rewrite, request.headers())
    });
    if let Some(fields) = fields {
        let (changes, rendered) = *fields;
        changes.apply(request.headers_mut(), rendered);
    }
    request.body_mut().filter_trailers(field_filter);
    request.body_mut().limit(max_body).map_err(|TooLong| LocalResponse::BodyTooLong)?;
    Ok(response_rewrite)
}

/// Rewrites the upstream's response for the client.
fn rewrite_upstream_response(
    response: HeadlessResponse,
    request: &mut Request<RequestBody>,
    call: Option<GrpcCall>,
    accepts_trailers: bool,
    trace: Option<&Trace>,
) -> Response<ResponseBody> {
    let mut response = response.into_response(request);
    match head::response(&mut response, accepts_trailers) {
        Some(()) => response,
        None => {
            record_failure(trace, AttemptOutcome::InvalidResponse.as_str());
            local_response(LocalResponse::BadUpstreamResponse { not_retried: None }, call)
        }
    }
}

/// Records for the access log why the gateway replaces the upstream's response.
fn record_failure(trace: Option<&Trace>, reason: &'static str) {
    if let Some(trace) = trace {
        trace.record_failure(reason);
    }
}

/// Returns the response of the gateway if the upstream sent none. Permits are given back only if the cause is on the side
/// of the gateway or the upstream: a client could repeat any other request without end.
///
/// | cause of an unsent request | permits |
/// |---|---|
/// | no connection, no usable target, all connections in use, refused by an HTTP/2 upstream | given back |
/// | the client's own requests use its share of the connections or of the queue | charged |
/// | the timeouts of the rules pass before it is sent | given back |
/// | the client's `grpc-timeout` passes before it is sent | charged |
/// | an upgrade that the target does not support | charged |
/// | a body that is malformed, incomplete, too long or stalls | charged |
/// | `Max-Forwards: 0`, TRACE, CONNECT, too many proxies, a head that cannot be forwarded | charged |
/// | the client disconnects | charged |
fn error_response(error: SendError, call: Option<GrpcCall>, upstream: &Upstream) -> Response<ResponseBody> {
    let SendError { error, not_retried } = error;
    let name = || Arc::clone(upstream.name());
    let busy = |reason| LocalResponse::UpstreamBusy { upstream: name(), reason };
    let not_retried = not_retried.map(NotRetried::text);
    match error {
        UpstreamError::Unreachable => not_sent(LocalResponse::UpstreamUnreachable, call),
        UpstreamError::NoUsableTarget => not_sent(LocalResponse::UpstreamDown { upstream: name() }, call),
        // Stays charged, because each attempt costs a TLS handshake.
        UpstreamError::UpgradeUnsupported => local_response(LocalResponse::UpstreamUnreachable, call),
        UpstreamError::QueueFull { by_client: true } => local_response(busy("queue_full"), call),
        UpstreamError::QueueFull { by_client: false } => not_sent(busy("queue_full"), call),
        UpstreamError::QueueTimedOut { by_client: true } => local_response(busy("queue_timeout"), call),
        UpstreamError::QueueTimedOut { by_client: false } => not_sent(busy("queue_timeout"), call),
        UpstreamError::TimedOut => local_response(LocalResponse::UpstreamTimedOut { not_retried }, call),
        UpstreamError::Broken => local_response(LocalResponse::BadUpstreamResponse { not_retried }, call),
        UpstreamError::ClientStalled => local_response(LocalResponse::BodyTimedOut, call),
        UpstreamError::ClientBroken => local_response(LocalResponse::BodyIncomplete, call),
        UpstreamError::ClientTooLong => local_response(LocalResponse::BodyTooLong, call),
    }
}

fn local_response(response: LocalResponse, call: Option<GrpcCall>) -> Response<ResponseBody> {
    response.into_response_for(call, HeaderMap::new()).map(ResponseBody::from)
}

fn not_sent(response: LocalResponse, call: Option<GrpcCall>) -> Response<ResponseBody> {
    let mut response = local_response(response, call);
    response.extensions_mut().insert(NotSent);
    response
}
