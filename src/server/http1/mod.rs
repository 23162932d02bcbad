//! Serves an HTTP/1 connection: reads a request, writes the response, and continues with the next request.
//!
//! Everything runs in the connection's own task, in the order of the requests. While a request is handled, the next
//! one may be read ahead. If the client closes the connection, the request is cancelled.

mod client_body;
mod request_reader;
mod response_writer;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use http::{Extensions, HeaderMap, Method, StatusCode, Version};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use self::client_body::ClientBody;
use self::request_reader::{MAX_DISCARDED, RequestReader};
use self::response_writer::{ResponseSource, ResponseWriter};
use super::activity::{Activity, InFlightRequest};
use super::driver::Drainable;
use super::head::{check_incomplete, check_request, rejection_cause};
use super::metered_socket::{LINGER, MeteredSocket};
use super::peer::ConnectionPeer;
use super::socket::Socket;
use super::{HttpService, Rejection, ServerContext, scheme};
use crate::http::http1::{BadHead, Framing, ParsedRequest, WriteBuffer, poll_head_bytes, read_request};
use crate::upstream::{InformationalSender, RequestBody};
use tidegate_layer::layer::{OverTls, TlsPeer};
use tidegate_layer::local_response::LocalResponse;
use tidegate_limit::clock::forget_poll_time;
use tidegate_limit::clock::timer::Timer;
use tidegate_rules::route::upgrade::Offer;

/// An HTTP/1 connection.
pub(crate) struct Http1<S: HttpService> {
    reader: Arc<Mutex<RequestReader>>,
    activity: Arc<Activity>,
    service: S,
    peer: ConnectionPeer,
    tls: Option<Arc<TlsPeer>>,
    context: Arc<ServerContext>,
    stage: Stage<S::Body>,
    /// The service's future, in an allocation that is reused.
    handling: Pin<Box<Option<S::Future>>>,
    outgoing: WriteBuffer,
    /// The maps of the last request's fields and extensions, reused for the next.
    fields: HeaderMap,
    extensions: Extensions,
    /// How many bytes were already searched for the end of the head.
    searched: usize,
    /// The next response is the last one. A response that has already begun does not count.
    is_last: bool,
    /// No further request is accepted.
    is_finishing: bool,
}

enum Stage<B> {
    /// Reading a request head.
    Head,
    /// Waiting for the service.
    Handling(Exchange),
    Responding(Exchange, ResponseWriter<B>),
    /// Discarding the rest of a request body.
    Discarding(DiscardLimits),
    Closing,
}

/// Properties of the request that its response depends on.
pub(super) struct Exchange {
    version: Version,
    head_only: bool,
    accepts_trailers: bool,
    keeps_open: bool,
    in_flight: InFlightRequest,
}

/// The limits on discarding the rest of a body.
struct DiscardLimits {
    /// How many more bytes may arrive.
    budget: u64,
    until: Instant,
    timer: Timer,
}

/// The next action of the connection.
enum Step {
    /// Continue with the current stage.
    Continue,
    /// Close the connection.
    Close,
}

impl<S: HttpService> Http1<S> {
    pub(super) fn new(stream: MeteredSocket, service: S, peer: ConnectionPeer, context: Arc<ServerContext>) -> Self {
        Self {
            activity: Arc::clone(stream.activity()),
            tls: peer.tls(stream.socket().tls_peer()),
            reader: Arc::new(Mutex::new(RequestReader::new(stream))),
            service,
            peer,
            context,
            stage: Stage::Head,
            handling: Box::pin(None),
            outgoing: WriteBuffer::default(),
            fields: HeaderMap::new(),
            extensions: Extensions::new(),
            searched: 0,
            is_last: false,
            is_finishing: false,
        }
    }

    /// Returns the socket of an idle connection. Returns `None` if a request has begun.
    pub(super) fn into_socket(self) -> Option<Socket> {
        let reader = Arc::into_inner(self.reader)?.into_inner();
        (matches!(self.stage, Stage::Head) && reader.unread.is_empty()).then(|| reader.stream.into_socket())
    }

    /// Reads a head, and calls the service.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        ready!(self.service.poll_ready(cx));
        loop {
            let mut reader = self.reader.lock();
            if may_contain_end(&reader.unread, self.searched) {
                match read_request(&reader.unread, &mut self.fields, self.context.limits.head.fields) {
                    Ok(Some(parsed)) => {
                        let framing = reader.begin_request(&parsed);
                        drop(reader);
                        self.begin_request(parsed, framing);
                        return Poll::Ready(Step::Continue);
                    }
                    Ok(None) => {}
                    Err(bad) => {
                        drop(reader);
                        return self.reject(bad.into());
                    }
                }
            }
            self.searched = reader.unread.len();
            if let Some(local_response) = check_incomplete(&self.context.limits.head, &reader.unread) {
                drop(reader);
                return self.reject(local_response);
            }
            let RequestReader { stream, unread, .. } = &mut *reader;
            match poll_head_bytes(stream, unread, cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Step::Close),
                Poll::Pending if self.is_finishing && unread.is_empty() => return Poll::Ready(Step::Close),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn begin_request(&mut self, parsed: ParsedRequest, framing: Framing) {
        let ParsedRequest { request, keeps_open, accepts_trailers, offer, .. } = parsed;
        let has_body = framing != Framing::Length(0);
        let in_flight = self.activity.begin_request(has_body);
        let (version, head_only) = (request.version(), *request.method() == Method::HEAD);
        let keeps_open = keeps_open && self.can_serve_more();
        let mut exchange = Exchange { version, head_only, accepts_trailers, keeps_open, in_flight };
        self.searched = 0;
        let accepts_informational = version == Version::HTTP_11;
        let head_error = check_request(&self.context.limits.head, &request);
        let target = || scheme::check(version, request.uri(), request.headers());
        if let Some(local_response) = head_error.or_else(target) {
            self.context.metrics.rejected(rejection_cause(&local_response));
            (self.context.on_rejection)(&Rejection::request(&local_response, &request, self.peer.address));
            exchange.keeps_open = false;
            let (head, ()) = request.into_parts();
            let response = local_response.into_response_to(&head.method, head.headers);
            self.stage = self.begin_response(exchange, response.map(ResponseSource::Local));
            return;
        }
        // An upgrade must be the last HTTP request: without a body, and with a whole response.
        let offer = offer.filter(|_| !has_body && !head_only);
        // Without a body, the reader carries the client's bytes after the upgrade.
        let has_body_reader = has_body || offer.is_some();
        let body = if has_body_reader { self.request_body(framing) } else { RequestBody::none() };
        let body =
            if accepts_informational { body.with_informational_sender(self.informational_sender()) } else { body };
        let mut request = request.map(|()| body);
        request.extensions_mut().extend(std::mem::take(&mut self.extensions));
        self.peer.insert_into(request.extensions_mut(), self.context.name.as_ref());
        if let Some(tls) = &self.tls {
            request.extensions_mut().insert(OverTls(Arc::clone(tls)));
        }
        if let Some(offer) = offer {
            request.extensions_mut().insert(Offer(offer));
        }
        self.handling.set(Some(self.service.call(request)));
        self.stage = Stage::Handling(exchange);
    }

    /// Returns the body of the current request.
    fn request_body(&self, framing: Framing) -> RequestBody {
        let relay = self.reader.lock().relay(framing);
        RequestBody::new(ClientBody::new(&self.reader, relay.clone())).with_relay(relay)
    }

    /// Returns a sender of informational responses. It does not count as a reader of the body.
    fn informational_sender(&self) -> InformationalSender {
        let weak: Weak<Mutex<RequestReader>> = Arc::downgrade(&self.reader);
        InformationalSender::new(weak)
    }

    /// Returns `true` if another request may follow on the connection.
    fn can_serve_more(&self) -> bool {
        let max = self.context.limits.max_requests;
        let requests = self.activity.requests();
        if requests == max {
            self.context.metrics.rejected("max_requests");
        }
        requests < max
    }

    /// Rejects bytes that are not a valid request, and closes the connection, because the start of the next request is
    /// unknown.
    fn reject(&mut self, local_response: LocalResponse) -> Poll<Step> {
        self.context.metrics.rejected(rejection_cause(&local_response));
        (self.context.on_rejection)(&Rejection::bytes(&local_response, self.peer.address));
        let in_flight = self.activity.begin_request(true);
        let (version, head_only, accepts_trailers) = (Version::HTTP_11, false, false);
        let exchange = Exchange { version, head_only, accepts_trailers, keeps_open: false, in_flight };
        self.stage = self.begin_response(exchange, local_response.into_response().map(ResponseSource::Local));
        Poll::Ready(Step::Continue)
    }

    fn poll_handling(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let handled = match self.handling.as_mut().as_pin_mut() {
            Some(handling) => handling.poll(cx),
            None => return Poll::Ready(Step::Close),
        };
        let Poll::Ready(Ok(response)) = handled else { return self.poll_while_waiting(cx) };
        self.handling.set(None);
        if let Stage::Handling(exchange) = std::mem::replace(&mut self.stage, Stage::Closing) {
            self.stage = self.begin_response(exchange, response.map(ResponseSource::Service));
        }
        Poll::Ready(Step::Continue)
    }

    /// Sends informational responses. Returns `Ready` when the client has closed the connection.
    fn poll_while_waiting(&self, cx: &mut Context<'_>) -> Poll<Step> {
        let mut reader = self.reader.lock();
        if let Poll::Ready(Err(_)) = reader.poll_informational(cx) {
            return Poll::Ready(Step::Close);
        }
        reader.poll_client_gone(cx).map(|()| Step::Close)
    }

    /// Writes the head of a response.
    fn begin_response(
        &mut self,
        mut exchange: Exchange,
        response: http::Response<ResponseSource<S::Body>>,
    ) -> Stage<S::Body> {
        // If this is the only reference, the body was dropped and nothing will read it.
        let has_body_reader = Arc::strong_count(&self.reader) > 1;
        let is_timeout = response.status() == StatusCode::REQUEST_TIMEOUT;
        let mut reader = self.reader.lock();
        exchange.keeps_open &= !self.is_last && !self.is_finishing && !is_timeout && reader.can_reuse(has_body_reader);
        let is_relayable = reader.stream.socket().relayable().is_some();
        drop(reader); // the body of the response may lock it when it is dropped
        let (writer, fields, extensions) =
            ResponseWriter::write_head(&exchange, response, &mut self.outgoing, is_relayable);
        if writer.is_upgraded() {
            self.reader.lock().set_upgraded();
        }
        (self.fields, self.extensions) = (fields, extensions);
        Stage::Responding(exchange, writer)
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Stage::Responding(exchange, writer) = &mut self.stage else { return Poll::Ready(Step::Close) };
        let polled = writer.poll(exchange.accepts_trailers, &mut self.outgoing, &self.reader, cx);
        match polled {
            Poll::Ready(Ok(())) => {
                let keeps_open = exchange.keeps_open && writer.is_delimited();
                self.end_response(keeps_open);
                Poll::Ready(Step::Continue)
            }
            Poll::Ready(Err(_)) if self.replace_response() => Poll::Ready(Step::Continue),
            Poll::Ready(Err(_)) => {
                let Stage::Responding(exchange, _) = &self.stage else { return Poll::Ready(Step::Close) };
                // Only a reset keeps the client from taking a partial response for a complete one.
                exchange.in_flight.abort_response();
                Poll::Ready(Step::Close)
            }
            Poll::Pending => self.reader.lock().poll_client_gone(cx).map(|()| Step::Close),
        }
    }

    /// Replaces a failed response by an error: the request body is malformed or incomplete, or the response body is.
    /// Returns `false` if bytes of the response were already written, or if the response is an error already.
    fn replace_response(&mut self) -> bool {
        match std::mem::replace(&mut self.stage, Stage::Closing) {
            Stage::Responding(mut exchange, writer) if writer.can_be_replaced() => {
                drop(writer); // with the body, which may read the request
                let body_error = self.reader.lock().body_error();
                exchange.keeps_open &= body_error.is_none();
                let local_response = body_error.unwrap_or(LocalResponse::BadUpstreamResponse { not_retried: None });
                self.outgoing.discard();
                self.stage = self.begin_response(exchange, local_response.into_response().map(ResponseSource::Local));
                true
            }
            stage => {
                self.stage = stage;
                false
            }
        }
    }

    /// Continues with the next request after a complete response, or closes the connection.
    fn end_response(&mut self, keeps_open: bool) {
        if !keeps_open || self.is_finishing {
            self.stage = Stage::Closing;
            return;
        }
        let mut reader = self.reader.lock();
        let (is_read, has_more) = (reader.read_buffered_body(), !reader.unread.is_empty());
        if !is_read {
            reader.request += 1; // a retained body must not read the next request
        }
        drop(reader); // the body of the response may lock it when it is dropped
        if is_read {
            self.begin_next(has_more);
        } else {
            self.stage = Stage::Discarding(DiscardLimits {
                budget: MAX_DISCARDED,
                until: Instant::now() + LINGER,
                timer: Timer::new(),
            });
        }
    }

    /// Begins the next request. `has_more`: bytes of it have arrived.
    fn begin_next(&mut self, has_more: bool) {
        self.stage = Stage::Head; // ends the request
        forget_poll_time();
        if has_more {
            self.activity.record_read(0);
        }
    }

    fn poll_discarding(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Stage::Discarding(limits) = &mut self.stage else { return Poll::Ready(Step::Close) };
        let mut reader = self.reader.lock();
        let (discarded, has_more) = (reader.poll_discard(&mut limits.budget, cx), !reader.unread.is_empty());
        drop(reader);
        match discarded {
            Poll::Ready(true) if !self.is_finishing => self.begin_next(has_more),
            Poll::Ready(_) => self.stage = Stage::Closing,
            Poll::Pending => {
                ready!(limits.timer.poll(limits.until, cx));
                self.stage = Stage::Closing;
            }
        }
        Poll::Ready(Step::Continue)
    }
}

impl<S: HttpService> Future for Http1<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let next = match &self.stage {
                Stage::Head => self.poll_head(cx),
                Stage::Handling(_) => self.poll_handling(cx),
                Stage::Responding(..) => self.poll_response(cx),
                Stage::Discarding(_) => self.poll_discarding(cx),
                Stage::Closing => {
                    // An error while closing does not matter.
                    _ = ready!(Pin::new(&mut self.reader.lock().stream).poll_shutdown(cx));
                    return Poll::Ready(());
                }
            };
            match ready!(next) {
                Step::Continue => {}
                Step::Close => return Poll::Ready(()),
            }
        }
    }
}

impl<S: HttpService> Drainable for Http1<S> {
    fn begin_drain(mut self: Pin<&mut Self>) {
        self.is_last = true;
    }

    fn finish(mut self: Pin<&mut Self>) {
        self.is_finishing = true;
    }

    fn end_upload(self: Pin<&mut Self>) {
        self.reader.lock().end_upload();
    }

    fn client_has_closed(&self) -> bool {
        let is_http = match &self.stage {
            Stage::Handling(_) => true,
            Stage::Responding(_, writer) => !writer.is_upgraded(),
            Stage::Head | Stage::Discarding(_) | Stage::Closing => false,
        };
        is_http && self.reader.lock().stream.is_closed()
    }
}

/// Everything that must not move is boxed.
impl<S: HttpService> Unpin for Http1<S> {}

/// Returns `true` if the unread bytes may contain the end of a head. The first `searched` bytes are not searched
/// again, so that a client that sends single bytes causes no quadratic work.
fn may_contain_end(unread: &[u8], searched: usize) -> bool {
    let new = &unread[searched.saturating_sub(3).min(unread.len())..];
    match searched {
        0 => !unread.is_empty(),
        _ => new.windows(2).any(|two| two == b"\n\n") || new.windows(3).any(|three| three == b"\n\r\n"),
    }
}

impl From<BadHead> for LocalResponse {
    fn from(bad: BadHead) -> Self {
        match bad {
            BadHead::Malformed => Self::Malformed,
            BadHead::Version => Self::VersionNotSupported,
            BadHead::TooManyFields => Self::HeadersTooLarge,
            BadHead::Target => Self::UriTooLong,
            BadHead::Coding => Self::CodingNotImplemented,
        }
    }
}
