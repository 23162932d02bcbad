//! Reads the head of a request, and calls the service. Rejects bytes that are not a request.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use http::{Method, Version};
use parking_lot::Mutex;

use super::client_body::ClientBody;
use super::request_reader::RequestReader;
use super::response_writer::ResponseSource;
use super::{Exchange, Http1, Stage, Step};
use crate::http::http1::{BadHead, Framing, ParsedRequest, poll_head_bytes, read_request};
use crate::server::head::{check_incomplete, check_request, rejection_cause};
use crate::server::{HttpService, Rejection, scheme};
use crate::upstream::{InformationalSender, RequestBody};
use tidegate_layer::layer::OverTls;
use tidegate_layer::local_response::LocalResponse;
use tidegate_rules::route::upgrade::Offer;

impl<S: HttpService> Http1<S> {
    /// Reads a head, and calls the service.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
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
}

/// Returns `true` if the unread bytes may contain the end of a head. The first `searched` bytes are not searched
/// again, so that a client that sends single bytes causes no quadratic work.
pub(super) fn may_contain_end(unread: &[u8], searched: usize) -> bool {
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
