//! A connection of HTTP/1: a request, its answer, and the next.
//!
//! Everything happens in the connection's own task, in the order of the requests. While a request is being answered, the
//! next one may be read ahead; if the client closes, the answer is cancelled.

mod answering;
mod wire;

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

use self::answering::{Answering, Reply};
use self::wire::{ClientBody, DRAINED, Wire};
use super::activity::{Activity, InFlight};
use super::head::cause;
use super::peer::ConnectionPeer;
use super::stream::{LINGER, Socket, Watched};
use super::watch::Connection;
use super::{HttpService, Refused, Terms, scheme};
use crate::http1::{BadHead, Framing, Left, Outgoing, ParsedRequest, poll_head_bytes, read_request};
use crate::layer::{OverTls, TlsPeer};
use crate::local_response::LocalResponse;
use crate::timer::Timer;
use crate::upgrade::Offer;
use crate::upstream::{Informer, RequestBody};

/// The most that is read of the next requests while one is being answered, in search of the end of the connection.
const AHEAD: usize = 32 * 1024;

/// Serves a client.
pub(crate) struct Http1<S: HttpService> {
    wire: Arc<Mutex<Wire>>,
    activity: Arc<Activity>,
    service: S,
    peer: ConnectionPeer,
    tls: Option<Arc<TlsPeer>>,
    terms: Arc<Terms>,
    stage: Stage<S::Body>,
    /// The service's future, in an allocation that is reused.
    handling: Pin<Box<Option<S::Future>>>,
    outgoing: Outgoing,
    /// The maps of the last request's fields and extensions, reused for the next.
    fields: HeaderMap,
    extensions: Extensions,
    /// How many bytes were already searched for the end of the head.
    looked_at: usize,
    /// The next answer is the last one, unless it was begun already.
    is_last: bool,
    /// No request follows this one.
    retired: bool,
}

enum Stage<B> {
    /// Waits for a head.
    Head,
    /// Waits for the service.
    Handling(Exchange),
    Answering(Exchange, Answering<B>),
    /// Discards the rest of a body, within these bounds.
    Draining(Rest),
    Closing,
}

/// What is known of a request that is being answered.
pub(super) struct Exchange {
    version: Version,
    head_only: bool,
    accepts_trailers: bool,
    keeps_open: bool,
    in_flight: InFlight,
}

/// The bounds on discarding the rest of a body.
struct Rest {
    /// How much of it may come.
    budget: u64,
    until: Instant,
    timer: Timer,
}

/// What comes next.
enum Step {
    /// The stage is another.
    Stage,
    /// The connection is over.
    Over,
}

impl<S: HttpService> Http1<S> {
    pub(super) fn new(stream: Watched, service: S, peer: ConnectionPeer, terms: Arc<Terms>) -> Self {
        Self {
            activity: Arc::clone(stream.activity()),
            tls: stream.socket().tls_peer().cloned(),
            wire: Arc::new(Mutex::new(Wire::new(stream))),
            service,
            peer,
            terms,
            stage: Stage::Head,
            handling: Box::pin(None),
            outgoing: Outgoing::default(),
            fields: HeaderMap::new(),
            extensions: Extensions::new(),
            looked_at: 0,
            is_last: false,
            retired: false,
        }
    }

    /// The socket, of a connection on which nothing happens; nothing if something does.
    pub(super) fn into_socket(self) -> Option<Socket> {
        let wire = Arc::into_inner(self.wire)?.into_inner();
        (matches!(self.stage, Stage::Head) && wire.unread.is_empty()).then(|| wire.stream.into_socket())
    }

    /// Reads a head, and calls the service.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        ready!(self.service.poll_ready(cx));
        loop {
            let mut wire = self.wire.lock();
            if may_have_end(&wire.unread, self.looked_at) {
                match read_request(&wire.unread, &mut self.fields, self.terms.limits.head.fields) {
                    Ok(Some(asked)) => {
                        _ = wire.unread.split_to(asked.length);
                        drop(wire);
                        self.begin(asked);
                        return Poll::Ready(Step::Stage);
                    }
                    Ok(None) => {}
                    Err(bad) => {
                        drop(wire);
                        return self.refuse(bad.into());
                    }
                }
            }
            self.looked_at = wire.unread.len();
            if let Some(local_response) = self.terms.limits.head.endless(&wire.unread) {
                drop(wire);
                return self.refuse(local_response);
            }
            let Wire { stream, unread, .. } = &mut *wire;
            match poll_head_bytes(stream, unread, cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Step::Over),
                Poll::Pending if self.retired && unread.is_empty() => return Poll::Ready(Step::Over),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn begin(&mut self, asked: ParsedRequest) {
        let ParsedRequest { request, told, keeps_open, accepts_trailers, expects_continue, offer, .. } = asked;
        let left = Left::all_of(Framing::of_request(told));
        let in_flight = self.activity.begin_request(!left.is_end());
        let (version, head_only) = (request.version(), *request.method() == Method::HEAD);
        let keeps_open = keeps_open && self.may_go_on();
        let mut exchange = Exchange { version, head_only, accepts_trailers, keeps_open, in_flight };
        let has_body = !left.is_end();
        self.looked_at = 0;
        let may_inform = version == Version::HTTP_11;
        self.wire.lock().begin(left, expects_continue, may_inform);
        let excess = self.terms.limits.head.excess(&request);
        let target = || scheme::refuse(version, request.uri(), request.headers());
        if let Some(local_response) = excess.or_else(target) {
            self.terms.metrics.rejected(cause(&local_response));
            (self.terms.on_refused)(&Refused::request(&local_response, &request, self.peer.address));
            exchange.keeps_open = false;
            let (head, ()) = request.into_parts();
            let answer = local_response.into_response_to(&head.method, head.headers);
            self.stage = self.answer(exchange, answer.map(Reply::Own));
            return;
        }
        // A request with a body, or with half an answer, cannot be the last of HTTP.
        let offer = offer.filter(|_| !has_body && !head_only);
        // Without a body, what comes once the protocol is switched is read by it.
        let is_read = has_body || offer.is_some();
        let body = if is_read { RequestBody::new(ClientBody::new(&self.wire)) } else { RequestBody::none() };
        let body = if may_inform { body.informing(self.informer()) } else { body };
        let mut request = request.map(|()| body);
        request.extensions_mut().extend(std::mem::take(&mut self.extensions));
        self.peer.note(request.extensions_mut());
        if let Some(tls) = &self.tls {
            request.extensions_mut().insert(OverTls(Arc::clone(tls)));
        }
        if let Some(offer) = offer {
            request.extensions_mut().insert(Offer(offer));
        }
        self.handling.set(Some(self.service.call(request)));
        self.stage = Stage::Handling(exchange);
    }

    /// The way to the client for what comes before its answer. It does not count as a reader of the body.
    fn informer(&self) -> Informer {
        let weak: Weak<Mutex<Wire>> = Arc::downgrade(&self.wire);
        Informer::new(weak)
    }

    /// Whether another request may follow this one.
    fn may_go_on(&self) -> bool {
        let max = self.terms.limits.max_requests;
        let requests = self.activity.requests();
        if requests == max {
            self.terms.metrics.rejected("max_requests");
        }
        requests < max
    }

    /// Answers bytes that are no request, and closes: where the next request begins is unknown.
    fn refuse(&mut self, local_response: LocalResponse) -> Poll<Step> {
        self.terms.metrics.rejected(cause(&local_response));
        (self.terms.on_refused)(&Refused::bytes(&local_response, self.peer.address));
        let in_flight = self.activity.begin_request(true);
        let (version, head_only, accepts_trailers) = (Version::HTTP_11, false, false);
        let exchange = Exchange { version, head_only, accepts_trailers, keeps_open: false, in_flight };
        self.stage = self.answer(exchange, local_response.into_response().map(Reply::Own));
        Poll::Ready(Step::Stage)
    }

    fn poll_handling(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let handled = match self.handling.as_mut().as_pin_mut() {
            Some(handling) => handling.poll(cx),
            None => return Poll::Ready(Step::Over),
        };
        let Poll::Ready(Ok(response)) = handled else { return self.poll_waiting(cx) };
        self.handling.set(None);
        if let Stage::Handling(exchange) = std::mem::replace(&mut self.stage, Stage::Closing) {
            self.stage = self.answer(exchange, response.map(Reply::Service));
        }
        Poll::Ready(Step::Stage)
    }

    /// Tells the client what comes before its answer; ready when it has left.
    fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Poll::Ready(Err(_)) = self.wire.lock().poll_before_answer(cx) {
            return Poll::Ready(Step::Over);
        }
        self.poll_gone(cx)
    }

    /// Reads ahead while the answer is made; ready when the client has left. What is left of another protocol is not read here.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Step> {
        let Wire { stream, unread, left, .. } = &mut *self.wire.lock();
        while left.is_end() && unread.len() < AHEAD {
            match ready!(poll_head_bytes(stream, unread, cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(Step::Over),
            }
        }
        Poll::Pending
    }

    /// Writes the head of an answer.
    fn answer(&mut self, mut exchange: Exchange, response: http::Response<Reply<S::Body>>) -> Stage<S::Body> {
        // Nobody holds the other end of the wire any more: nobody will read the body.
        let is_wanted = Arc::strong_count(&self.wire) > 1;
        let gave_up = response.status() == StatusCode::REQUEST_TIMEOUT;
        exchange.keeps_open &= !self.is_last && !self.retired && !gave_up && self.wire.lock().leads_on(is_wanted);
        let (answering, fields, extensions) = Answering::begin(&exchange, response, &mut self.outgoing);
        if answering.is_switched() {
            self.wire.lock().switch();
        }
        (self.fields, self.extensions) = (fields, extensions);
        Stage::Answering(exchange, answering)
    }

    fn poll_answering(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Stage::Answering(exchange, answering) = &mut self.stage else { return Poll::Ready(Step::Over) };
        let polled = answering.poll(exchange.accepts_trailers, &mut self.outgoing, &self.wire, cx);
        match polled {
            Poll::Ready(Ok(())) => {
                let keeps_open = exchange.keeps_open && answering.is_delimited();
                self.end(keeps_open);
                Poll::Ready(Step::Stage)
            }
            Poll::Ready(Err(_)) if self.answer_anew() => Poll::Ready(Step::Stage),
            Poll::Ready(Err(_)) => {
                let Stage::Answering(exchange, _) = &self.stage else { return Poll::Ready(Step::Over) };
                // The client takes half an answer for a whole one unless it is told.
                exchange.in_flight.break_off();
                Poll::Ready(Step::Over)
            }
            Poll::Pending => self.poll_gone(cx),
        }
    }

    /// Replaces an answer that failed because of the client's own body by a local_response, if nothing of it was written yet.
    /// Returns whether it did.
    fn answer_anew(&mut self) -> bool {
        let Some(local_response) = self.wire.lock().local_response() else { return false };
        match std::mem::replace(&mut self.stage, Stage::Closing) {
            Stage::Answering(mut exchange, answering) if !answering.has_begun() => {
                self.outgoing.discard();
                exchange.keeps_open = false;
                self.stage = self.answer(exchange, local_response.into_response().map(Reply::Own));
                true
            }
            stage => {
                self.stage = stage;
                false
            }
        }
    }

    /// An answer is written: goes on to the next request, if there may be one.
    fn end(&mut self, keeps_open: bool) {
        if !keeps_open || self.retired {
            self.stage = Stage::Closing;
        } else if self.wire.lock().is_read() {
            self.next();
        } else {
            self.wire.lock().request += 1; // who still has the body reads no more of it
            self.stage = Stage::Draining(Rest { budget: DRAINED, until: Instant::now() + LINGER, timer: Timer::new() });
        }
    }

    /// All of a request has been read: the next one may have begun.
    fn next(&mut self) {
        self.stage = Stage::Head;
        if !self.wire.lock().unread.is_empty() {
            self.activity.read(0);
        }
    }

    fn poll_draining(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Stage::Draining(rest) = &mut self.stage else { return Poll::Ready(Step::Over) };
        let drained = self.wire.lock().poll_drain(&mut rest.budget, cx);
        match drained {
            Poll::Ready(true) if !self.retired => self.next(),
            Poll::Ready(_) => self.stage = Stage::Closing,
            Poll::Pending => {
                ready!(rest.timer.poll(rest.until, cx));
                self.stage = Stage::Closing;
            }
        }
        Poll::Ready(Step::Stage)
    }
}

impl<S: HttpService> Future for Http1<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let next = match &self.stage {
                Stage::Head => self.poll_head(cx),
                Stage::Handling(_) => self.poll_handling(cx),
                Stage::Answering(..) => self.poll_answering(cx),
                Stage::Draining(_) => self.poll_draining(cx),
                Stage::Closing => {
                    // How it closes is nobody's concern any more.
                    _ = ready!(Pin::new(&mut self.wire.lock().stream).poll_shutdown(cx));
                    return Poll::Ready(());
                }
            };
            match ready!(next) {
                Step::Stage => {}
                Step::Over => return Poll::Ready(()),
            }
        }
    }
}

impl<S: HttpService> Connection for Http1<S> {
    fn wind_down(mut self: Pin<&mut Self>) {
        self.is_last = true;
    }

    fn retire(mut self: Pin<&mut Self>) {
        self.retired = true;
    }

    fn end_upload(self: Pin<&mut Self>) {
        self.wire.lock().end_upload();
    }

    fn is_left(&self) -> bool {
        let is_http = match &self.stage {
            Stage::Handling(_) => true,
            Stage::Answering(_, answering) => !answering.is_switched(),
            Stage::Head | Stage::Draining(_) | Stage::Closing => false,
        };
        is_http && self.wire.lock().stream.is_closed()
    }
}

/// What must not move is boxed.
impl<S: HttpService> Unpin for Http1<S> {}

/// Whether there may be the end of a head in what was read, of which so much has been looked at in vain. Whoever sends
/// byte by byte is not read from the beginning each time.
fn may_have_end(unread: &[u8], looked_at: usize) -> bool {
    let new = &unread[looked_at.saturating_sub(3).min(unread.len())..];
    match looked_at {
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
