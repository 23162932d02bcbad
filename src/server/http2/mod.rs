//! A connection of HTTP/2: what a client opens on it, and what ends it.
//!
//! Frames, HPACK and flow control are the crate `h2`'s. What is ours is who answers, in a task for each request
//! ([`stream`]), and the bounds: on resets ([`ledger`]), on frames that ask for nothing ([`frames`]), on bodies that
//! wait for their client ([`deadline`]), on frames that wait for the socket ([`send_queue`]), on uploads that wait ([`windows`]), on
//! clients that are gone ([`ping`]).

mod connect;
mod deadline;
mod frames;
mod hints;
mod ledger;
mod ping;
mod send_queue;
mod shutdown;
mod stream;
#[cfg(test)]
mod tests;
mod upload;
mod windows;

use std::convert::Infallible;
use std::future::{self, Future};
use std::mem::take;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::{Builder, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body;

use self::connect::Switch;
use self::frames::Frames;
use self::hints::Hints;
use self::ledger::{Ledger, RESETS};
use self::ping::KeepAlive;
use self::send_queue::QueuedData;
use self::shutdown::{Shutdown, announced_ahead};
use self::stream::Stream;
use self::upload::{Unread, Upload};
use self::windows::Windows;
use super::activity::Activity;
use super::head::cause;
use super::peer::ConnectionPeer;
use super::stream::Watched;
use super::watch::Connection;
use super::{ConnectionLimits, HttpService, Refused, Terms, scheme};
use crate::boxed::boxed;
use crate::http1::length;
use crate::layer::{OverTls, TlsPeer};
use crate::upstream::{Informer, RequestBody, expects_continue};

/// The most bytes of a stream that `h2` buffers for its client.
const BUFFER: usize = 64 * 1024;
/// What `h2` allows for the overhead of small frames (256 bytes each, less what they carry) that wait for their upstreams on a
/// connection, before it ends the connection. It is enough for 64 KiB of the shortest messages of gRPC (6
/// bytes); what `h2` takes unless it is told would be used up by a fifth of them.
const SMALL_FRAMES: usize = 3 * 1024 * 1024;
/// The streams that `h2` itself resets or refuses on a connection, for being malformed or too many, before it ends the
/// connection. A client that opens what it likes before it has read our SETTINGS has some of them refused.
const REFUSALS: usize = 200;

/// Clients that no longer answer, as they are counted.
const GONE: &str = "gone";

/// Serves a client.
pub(crate) struct Http2<S: HttpService> {
    stage: Stage,
    service: S,
    peer: ConnectionPeer,
    tls: Option<Arc<TlsPeer>>,
    activity: Arc<Activity>,
    terms: Arc<Terms>,
    ledger: Arc<Ledger>,
    shutdown: Shutdown,
    /// The client was told to go away.
    dismissed: bool,
    windows: Windows,
}

/// A request, and the way to respond to it.
type Accepted = Result<(Request<RecvStream>, SendResponse<QueuedData>), h2::Error>;

enum Stage {
    Greeting(Pin<Box<Handshake<Watched, QueuedData>>>),
    Serving(Box<Serving>),
}

struct Serving {
    connection: h2::server::Connection<Watched, QueuedData>,
    keep_alive: KeepAlive,
}

impl<S: HttpService> Http2<S> {
    pub(super) fn new(mut stream: Watched, service: S, peer: ConnectionPeer, terms: Arc<Terms>) -> Self {
        let activity = Arc::clone(stream.activity());
        let tls = stream.socket().tls_peer().cloned();
        let ledger = Arc::new(Ledger::default());
        stream.count_with(Frames::new(Arc::clone(&ledger)));
        let greeting = builder(&terms.limits).handshake(stream);
        let stage = Stage::Greeting(Box::pin(greeting));
        Self {
            stage,
            service,
            peer,
            tls,
            activity,
            terms,
            ledger,
            shutdown: Shutdown::default(),
            dismissed: false,
            windows: Windows::default(),
        }
    }

    /// Serves a request in a task of its own.
    fn begin(&mut self, mut request: Request<RecvStream>, mut respond: SendResponse<QueuedData>) {
        if self.is_over() {
            // Not processed at all, so the client can send it again elsewhere (RFC 9113 section 8.7).
            respond.send_reset(Reason::REFUSED_STREAM);
            if self.shutdown.refuse(self.terms.limits.max_streams) {
                self.ledger.finish();
            }
            return;
        }
        let in_flight = self.activity.begin_request(false);
        let stream = Stream {
            respond,
            head_only: *request.method() == Method::HEAD,
            in_flight,
            ledger: Arc::clone(&self.ledger),
            terms: Arc::clone(&self.terms),
            switch: Switch::of(&mut request),
            hints: Arc::default(),
        };
        if request.headers().values().any(has_outer_whitespace) {
            return stream.refuse_malformed();
        }
        let target = || scheme::refuse(Version::HTTP_2, request.uri(), request.headers());
        let local_response = self.terms.limits.head.excess(&request).or_else(target).inspect(|local_response| {
            self.terms.metrics.rejected(cause(local_response));
            (self.terms.on_refused)(&Refused::request(local_response, &request, self.peer.address));
        });
        let unread = (!request.body().is_end_stream()).then(Unread::default);
        let told = unread.as_ref().map(|unread| {
            let (length, asks) = (length(request.headers()).ok().flatten(), expects_continue(request.headers()));
            (unread.clone(), length, asks)
        });
        let hints: Weak<Hints> = Arc::downgrade(&stream.hints);
        let mut request = request.map(|body| {
            let body = match told {
                Some((unread, length, asks)) => RequestBody::new(Upload::new(body, unread, length, asks, &stream)),
                None => RequestBody::none(),
            };
            body.informing(Informer::new(hints))
        });
        if let Some(local_response) = local_response {
            let fields = take(request.headers_mut());
            let answer = local_response.into_response_to(request.method(), fields);
            return spawn(stream, future::ready(Ok(answer)), unread);
        }
        self.peer.note(request.extensions_mut());
        if let Some(tls) = &self.tls {
            request.extensions_mut().insert(OverTls(Arc::clone(tls)));
        }
        spawn(stream, self.service.call(request), unread);
    }

    /// Whether the connection takes no more requests: it has brought the last one, or its shutdown has reached the deadline.
    fn is_over(&self) -> bool {
        self.ledger.is_finished() || self.activity.requests() >= self.terms.limits.max_requests
    }

    /// Announces the end of the connection before the last request that it may bring.
    fn retire_before_last(&mut self) {
        let limits = &self.terms.limits;
        let announced_at = limits.max_requests - announced_ahead(limits.max_requests, limits.max_streams);
        if self.activity.requests() >= announced_at && !self.shutdown.is_announced() {
            self.terms.metrics.rejected("max_requests");
            Pin::new(self).retire();
        }
    }

    /// Closes the connection because of its client's behaviour.
    fn dismiss(&mut self, cause: &'static str) {
        let Stage::Serving(serving) = &mut self.stage else { return };
        self.dismissed = true;
        self.terms.metrics.rejected(cause);
        self.ledger.dismiss();
        serving.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    }

    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ledger.watch(cx);
        loop {
            if let Some(cause) = self.ledger.excess().filter(|_| !self.dismissed) {
                self.dismiss(cause);
            }
            let Stage::Serving(serving) = &mut self.stage else { return Poll::Ready(()) };
            self.windows.adapt(&mut serving.connection, &self.ledger);
            ready!(self.service.poll_ready(cx));
            match serving.poll_accept(&self.ledger, cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.begin(request, respond);
                    self.retire_before_last();
                }
                Poll::Ready(Some(Err(error))) => {
                    self.note(&error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if !self.dismissed && self.ledger.excess().is_some() => {}
                // All received bytes have been read, and an acknowledgement would be among them.
                Poll::Pending if self.shutdown.poll_deadline(cx).is_ready() => self.ledger.finish(),
                Poll::Pending => return self.poll_gone(cx),
            }
        }
    }

    /// Ready when the client is gone. Is asked when all was read that has come: silence while we had no turn is not the client's.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let (Stage::Serving(serving), false) = (&mut self.stage, self.dismissed) {
            ready!(serving.keep_alive.poll(&self.ledger, self.activity.is_busy(), cx));
            self.terms.metrics.rejected(GONE);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Counts what `h2` ended the connection for.
    fn note(&self, error: &h2::Error) {
        if self.dismissed || !(error.is_go_away() && error.is_library()) {
            return;
        }
        let cause = match error.reason() {
            // It does not tell which of its bounds it was.
            Some(Reason::ENHANCE_YOUR_CALM) if self.ledger.is_resetting() => "rapid_reset",
            Some(Reason::ENHANCE_YOUR_CALM) => "h2_flood",
            _ => "malformed",
        };
        self.terms.metrics.rejected(cause);
    }
}

impl Serving {
    /// Reads and writes frames. Returns the next request while the send queue is not full.
    fn poll_accept(&mut self, ledger: &Ledger, cx: &mut Context<'_>) -> Poll<Option<Accepted>> {
        let queue = ledger.queue();
        loop {
            let (is_ready, heads) = (queue.poll_ready(cx).is_ready(), queue.heads());
            let polled = match is_ready {
                true => self.connection.poll_accept(cx),
                false => self.connection.poll_closed(cx).map(|closed| closed.err().map(Err)),
            };
            queue.remove_heads(heads);
            // What was just written can have made room for the next request.
            if is_ready || polled.is_ready() || queue.poll_ready(cx).is_pending() {
                return polled;
            }
        }
    }
}

impl<S: HttpService> Future for Http2<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Stage::Greeting(greeting) = &mut self.stage {
            let Ok(mut connection) = ready!(greeting.as_mut().poll(cx)) else { return Poll::Ready(()) };
            if self.shutdown.is_announced() {
                connection.graceful_shutdown();
            }
            let keep_alive = KeepAlive::new(connection.ping_pong(), self.terms.limits.body.timeout);
            self.stage = Stage::Serving(Box::new(Serving { connection, keep_alive }));
        }
        self.poll_serve(cx)
    }
}

impl<S: HttpService> Connection for Http2<S> {
    /// The client is told, and those requests are answered that it sends before it knows.
    fn wind_down(self: Pin<&mut Self>) {
        self.retire();
    }

    fn retire(mut self: Pin<&mut Self>) {
        self.shutdown.announce();
        if let Stage::Serving(serving) = &mut self.stage {
            serving.connection.graceful_shutdown();
        }
    }
}

/// What must not move is boxed.
impl<S: HttpService> Unpin for Http2<S> {}

/// Answers in a task of its own, and then handles the unread rest of the body.
fn spawn<F, B>(mut stream: Stream, handling: F, unread: Option<Unread>)
where
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    // Boxed: the runtime moves a task's future several times before it runs, and once more behind it.
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
        .max_send_buffer_size(BUFFER)
        .data_frame_budget(SMALL_FRAMES)
        .max_pending_accept_reset_streams(RESETS as usize)
        .max_local_error_reset_streams(Some(REFUSALS));
    builder
}

/// RFC 9113 section 8.2.1.
fn has_outer_whitespace(value: &HeaderValue) -> bool {
    let is_white = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_white(value.as_bytes().first()) || is_white(value.as_bytes().last())
}
