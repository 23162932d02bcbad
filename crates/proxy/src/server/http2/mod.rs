//! Serves an HTTP/2 connection.
//!
//! The crate `h2` implements frames, HPACK and flow control. Each request runs in its own task ([`stream`]). The other
//! modules limit resets ([`shared_counters`]), frames without content ([`frame_limiter`]), bodies that wait for their
//! client ([`deadline`]), frames that wait for the socket ([`send_queue`]), requests, uploads and long responses
//! that wait ([`request_heads`], [`windows`], [`head_room`]), and clients that no longer respond ([`ping`]).
//! [`sent_resets`] finds the requests that `h2` rejects.

mod deadline;
mod frame_limiter;
mod head_room;
mod informational;
mod ping;
mod request_heads;
mod send_body;
mod send_queue;
mod sent_resets;
mod shared_counters;
mod shutdown;
mod stream;
#[cfg(test)]
mod tests;
mod tunnel;
mod upload;
mod windows;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{self, Future};
use std::mem::take;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, Version};
use http_body::Body;

use self::frame_limiter::FrameLimiter;
use self::informational::PendingInformational;
use self::ping::KeepAlive;
use self::request_heads::{CountedHead, RequestHeads};
use self::send_queue::QueuedData;
use self::shared_counters::{MAX_RESETS, SharedCounters};
use self::shutdown::{Shutdown, announced_ahead};
use self::stream::Stream;
use self::tunnel::TunnelState;
use self::upload::{Unread, Upload};
use self::windows::Windows;
use super::activity::Activity;
use super::driver::Drainable;
use super::head::{check_request, rejection_cause};
use super::metered_socket::MeteredSocket;
use super::peer::ConnectionPeer;
use super::{ConnectionLimits, HttpService, Rejection, ServerContext, scheme};
use crate::http::http1::length;
use crate::http::http2::has_outer_whitespace;
use crate::transport::BodyData;
use crate::upstream::{InformationalSender, RequestBody, expects_continue};
use tidegate_layer::layer::{OverTls, TlsPeer};
use tidegate_layer::local_response::LocalResponse;
use tidegate_limit::boxed::boxed;

/// The maximum number of bytes that `h2` buffers for a stream.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// The overhead of small frames (256 bytes each, less their payload) that may wait for their upstreams before `h2`
/// closes the connection. It suffices for 64 KiB of the shortest gRPC messages (6 bytes). A fifth of these messages
/// would exhaust the default of `h2`.
const SMALL_FRAME_BUDGET: usize = 3 * 1024 * 1024;
/// How many streams `h2` may itself reset or refuse on a connection, because they are malformed or too many, before it
/// closes the connection. Clients that open many streams before they have read the SETTINGS cause some.
const MAX_LOCAL_RESETS: usize = 200;

/// The label by which clients that no longer respond are counted.
const GONE: &str = "gone";

/// An HTTP/2 connection.
pub(crate) struct Http2<S: HttpService> {
    stage: Stage,
    service: S,
    peer: ConnectionPeer,
    tls: Option<Arc<TlsPeer>>,
    activity: Arc<Activity>,
    context: Arc<ServerContext>,
    counters: Arc<SharedCounters>,
    shutdown: Shutdown,
    /// Whether the last GOAWAY was sent.
    goaway_sent: bool,
    windows: Windows,
}

/// A request that `h2` has passed on.
struct Accepted {
    request: Request<RecvStream>,
    respond: SendResponse<QueuedData>,
    head: CountedHead,
}

enum Stage {
    Handshake(Pin<Box<h2::server::Handshake<MeteredSocket, QueuedData>>>),
    Serving(Box<Serving>),
}

struct Serving {
    connection: h2::server::Connection<MeteredSocket, QueuedData>,
    keep_alive: KeepAlive,
    heads: Arc<RequestHeads>,
    /// Requests that wait until the send queue is not full.
    waiting: VecDeque<Accepted>,
    max_waiting: usize,
    /// The end of the connection, until the waiting requests are served.
    ended: Option<Result<(), h2::Error>>,
}

impl<S: HttpService> Http2<S> {
    pub(super) fn new(
        mut stream: MeteredSocket,
        service: S,
        peer: ConnectionPeer,
        context: Arc<ServerContext>,
    ) -> Self {
        let activity = Arc::clone(stream.activity());
        let tls = peer.tls(stream.socket().tls_peer());
        let counters = Arc::new(SharedCounters::default());
        stream.set_meter(FrameLimiter::new(Arc::clone(&counters)));
        let handshake = builder(&context.limits).handshake(stream);
        let stage = Stage::Handshake(Box::pin(handshake));
        Self {
            stage,
            service,
            peer,
            tls,
            activity,
            context,
            counters,
            shutdown: Shutdown::default(),
            goaway_sent: false,
            windows: Windows::default(),
        }
    }

    /// Serves a request in its own task.
    fn begin_request(&mut self, accepted: Accepted) {
        if self.is_finished() {
            return self.refuse(accepted.respond);
        }
        let Accepted { mut request, respond, head } = accepted;
        let stream = self.stream(&mut request, respond, head);
        if request.headers().values().any(has_outer_whitespace) {
            (self.context.on_rejection)(&Rejection::request(&LocalResponse::Malformed, &request, self.peer.address));
            return stream.reject_malformed();
        }
        let local_response = self.check(&request);
        let (mut request, unread) = self.with_upload(request, &stream);
        if let Some(local_response) = local_response {
            let fields = take(request.headers_mut());
            let response = local_response.into_response_to(request.method(), fields);
            return spawn_response(stream, future::ready(Ok(response)), unread);
        }
        self.peer.insert_into(request.extensions_mut(), self.context.name.as_ref());
        if let Some(tls) = &self.tls {
            request.extensions_mut().insert(OverTls(Arc::clone(tls)));
        }
        spawn_response(stream, self.service.call(request), unread);
    }

    /// Refuses a request. It was not processed, so the client can send it again elsewhere (RFC 9113 section 8.7).
    fn refuse(&mut self, mut respond: SendResponse<QueuedData>) {
        respond.send_reset(Reason::REFUSED_STREAM);
        if self.shutdown.count_refused(self.context.limits.max_streams) {
            self.reject("h2_flood");
        }
    }

    fn stream(
        &self,
        request: &mut Request<RecvStream>,
        respond: SendResponse<QueuedData>,
        head: CountedHead,
    ) -> Stream {
        Stream {
            respond,
            head_only: *request.method() == Method::HEAD,
            in_flight: self.activity.begin_request(false),
            counters: Arc::clone(&self.counters),
            context: Arc::clone(&self.context),
            tunnel: TunnelState::from_request(request),
            head: Some(head),
            informational: PendingInformational::new(&self.counters),
        }
    }

    /// Returns the rejection of a request with an invalid head, and records it.
    fn check(&self, request: &Request<RecvStream>) -> Option<LocalResponse> {
        let target = || scheme::check(Version::HTTP_2, request.uri(), request.headers());
        check_request(&self.context.limits.head, request).or_else(target).inspect(|local_response| {
            self.context.metrics.rejected(rejection_cause(local_response));
            (self.context.on_rejection)(&Rejection::request(local_response, request, self.peer.address));
        })
    }

    /// Converts the body of a request. Returns the part that the service leaves unread, if there is a body.
    fn with_upload(&self, request: Request<RecvStream>, stream: &Stream) -> (Request<RequestBody>, Option<Unread>) {
        let unread = (!request.body().is_end_stream()).then(Unread::default);
        let expected = unread.as_ref().map(|unread| {
            let (length, expects) = (length(request.headers()).ok().flatten(), expects_continue(request.headers()));
            (unread.clone(), length, expects)
        });
        let informational: Weak<PendingInformational> = Arc::downgrade(&stream.informational);
        let request = request.map(|body| {
            let body = match expected {
                Some((unread, length, expects)) => {
                    let upload = Upload::new(body, unread, length, expects, stream);
                    RequestBody::new(upload).with_replay_budget(self.counters.replay_budget())
                }
                None => RequestBody::none(),
            };
            body.with_informational_sender(InformationalSender::new(informational))
        });
        (request, unread)
    }

    /// Returns `true` if the connection accepts no more requests: it has had its last one, or its shutdown has reached
    /// the deadline.
    fn is_finished(&self) -> bool {
        self.counters.is_finished() || self.activity.requests() >= self.context.limits.max_requests
    }

    /// Announces the shutdown before the last request that the connection may have.
    fn announce_last_request(&mut self) {
        let limits = &self.context.limits;
        let announced_at = limits.max_requests - announced_ahead(limits.max_requests, limits.max_streams);
        if self.activity.requests() >= announced_at && !self.shutdown.is_announced() {
            self.context.metrics.rejected("max_requests");
            Pin::new(self).finish();
        }
    }

    /// Closes the connection because of the client's behaviour.
    fn reject(&mut self, cause: &'static str) {
        self.context.metrics.rejected(cause);
        self.counters.set_goaway_sent();
        self.close(Reason::ENHANCE_YOUR_CALM);
    }

    /// Returns `true` if the shutdown has reached its deadline, and no stream is left.
    fn has_ended(&self) -> bool {
        let Stage::Serving(serving) = &self.stage else { return false };
        !self.goaway_sent && self.counters.is_finished() && !serving.connection.has_streams()
    }

    /// Sends the last GOAWAY, and closes the connection.
    fn close(&mut self, reason: Reason) {
        let Stage::Serving(serving) = &mut self.stage else { return };
        self.goaway_sent = true;
        serving.connection.abrupt_shutdown(reason);
    }

    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.counters.register_waker(cx);
        loop {
            if let Some(cause) = self.counters.exceeded_limit().filter(|_| !self.goaway_sent) {
                self.reject(cause);
            }
            let Stage::Serving(serving) = &mut self.stage else { return Poll::Ready(()) };
            self.windows.adapt(&mut serving.connection, &self.counters);
            ready!(self.service.poll_ready(cx));
            let accepted = serving.poll_accept(&self.counters, &self.context, cx);
            if !matches!(accepted, Poll::Ready(Some(Ok(_)))) {
                self.count_malformed_heads();
            }
            match accepted {
                Poll::Ready(Some(Ok(accepted))) => {
                    self.begin_request(accepted);
                    self.announce_last_request();
                }
                Poll::Ready(Some(Err(error))) => {
                    self.count_error(&error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if !self.goaway_sent && self.counters.exceeded_limit().is_some() => {}
                Poll::Pending if self.shutdown.poll_deadline(cx).is_ready() => self.counters.set_finished(),
                Poll::Pending if self.has_ended() => self.close(Reason::NO_ERROR),
                Poll::Pending => return self.poll_client_gone(cx),
            }
        }
    }

    /// Returns `Ready` when the client no longer responds. Called only when all received bytes have been read:
    /// otherwise a busy gateway would take its own delay for the client's silence.
    fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let (Stage::Serving(serving), false) = (&mut self.stage, self.goaway_sent) {
            ready!(serving.keep_alive.poll(&self.counters, self.activity.is_busy(), cx));
            self.context.metrics.rejected(GONE);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Counts and logs the requests that `h2` has rejected because of their heads.
    fn count_malformed_heads(&self) {
        for _ in 0..self.counters.take_malformed_heads() {
            self.context.metrics.rejected("malformed");
            (self.context.on_rejection)(&Rejection::bytes(&LocalResponse::Malformed, self.peer.address));
        }
    }

    /// Counts the reason for which `h2` closed the connection.
    fn count_error(&self, error: &h2::Error) {
        if self.goaway_sent || !(error.is_go_away() && error.is_library()) {
            return;
        }
        let cause = match error.reason() {
            // `h2` does not report which of its limits was exceeded.
            Some(Reason::ENHANCE_YOUR_CALM) if self.counters.is_resetting() => "rapid_reset",
            Some(Reason::ENHANCE_YOUR_CALM) => "h2_flood",
            _ => "malformed",
        };
        self.context.metrics.rejected(cause);
    }
}

impl Serving {
    fn new(mut connection: h2::server::Connection<MeteredSocket, QueuedData>, limits: &ConnectionLimits) -> Self {
        let keep_alive = KeepAlive::new(connection.ping_pong(), limits.body.timeout);
        let heads = RequestHeads::new(limits.max_streams);
        let (waiting, max_waiting) = (VecDeque::new(), limits.max_streams as usize);
        Self { connection, keep_alive, heads, waiting, max_waiting, ended: None }
    }

    /// Reads and writes frames. Returns the next request while the send queue is not full.
    fn poll_accept(
        &mut self,
        counters: &SharedCounters,
        context: &ServerContext,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Accepted, h2::Error>>> {
        let (queue, heads) = (counters.queue(), counters.queue().heads());
        if self.ended.is_none()
            && let Poll::Ready(end) = self.poll_requests(counters, context, cx)
        {
            self.ended = Some(end);
        }
        queue.remove_heads(heads);
        // The bytes just written may have made room for the next request.
        if queue.poll_ready(cx).is_ready()
            && let Some(accepted) = self.waiting.pop_front()
        {
            return Poll::Ready(Some(Ok(accepted)));
        }
        self.ended.take().map_or(Poll::Pending, |end| Poll::Ready(end.err().map(Err)))
    }

    /// Takes all requests from `h2`. Refuses those for whose heads the connection has no room: they were not processed,
    /// so the client can send them again (RFC 9113 section 8.7). Returns `Ready` at the end of the connection.
    fn poll_requests(
        &mut self,
        counters: &SharedCounters,
        context: &ServerContext,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        while let Some(accepted) = ready!(self.connection.poll_accept(cx)) {
            let (mut request, mut respond) = accepted?;
            counters.set_accepted(respond.stream_id());
            // A client can reset waiting requests, and send others in their places.
            let has_room = self.waiting.len() < self.max_waiting;
            match self.heads.count(&mut request).filter(|_| has_room) {
                Some(head) => self.waiting.push_back(Accepted { request, respond, head }),
                None => {
                    context.metrics.rejected("waiting_heads");
                    counters.count_reset();
                    respond.send_reset(Reason::REFUSED_STREAM);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: HttpService> Future for Http2<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Stage::Handshake(handshake) = &mut self.stage {
            let Ok(mut connection) = ready!(handshake.as_mut().poll(cx)) else { return Poll::Ready(()) };
            if self.shutdown.is_announced() {
                connection.graceful_shutdown();
            }
            self.stage = Stage::Serving(Box::new(Serving::new(connection, &self.context.limits)));
        }
        self.poll_serve(cx)
    }
}

impl<S: HttpService> Drainable for Http2<S> {
    /// Announces the shutdown. Requests that the client sends before it reads the announcement are still served.
    fn begin_drain(self: Pin<&mut Self>) {
        self.finish();
    }

    fn finish(mut self: Pin<&mut Self>) {
        self.shutdown.announce();
        if let Stage::Serving(serving) = &mut self.stage {
            serving.connection.graceful_shutdown();
        }
    }
}

/// Everything that must not move is boxed.
impl<S: HttpService> Unpin for Http2<S> {}

/// Responds in a separate task, and then handles the unread rest of the body.
fn spawn_response<F, B>(mut stream: Stream, handling: F, unread: Option<Unread>)
where
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Into<BodyData>> + Send + Unpin + 'static,
{
    // Boxed, because the runtime moves a task's future several times before it first runs.
    tokio::spawn(boxed(|| async move {
        stream.serve(pin!(handling)).await;
        drop(stream);
        if let Some(unread) = unread {
            unread.linger().await;
        }
    }));
}

fn builder(limits: &ConnectionLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.max_streams)
        .enable_connect_protocol()
        .max_header_list_size(u32::try_from(limits.head.field_bytes + limits.head.target).unwrap_or(u32::MAX))
        .initial_window_size(windows::STREAM)
        .initial_connection_window_size(windows::CONNECTION)
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .data_frame_budget(SMALL_FRAME_BUDGET)
        .max_pending_accept_reset_streams(MAX_RESETS as usize)
        .max_local_error_reset_streams(Some(MAX_LOCAL_RESETS));
    builder
}
