//! Waits for the service's response, writes it, and begins the next request.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::time::Instant;

use super::request_reader::MAX_DISCARDED;
use super::response_writer::{ResponseSource, ResponseWriter};
use super::{DiscardLimits, Exchange, Http1, Stage, Step};
use crate::server::HttpService;
use crate::server::metered_socket::LINGER;
use tidegate_layer::local_response::LocalResponse;
use tidegate_limit::clock::forget_poll_time;
use tidegate_limit::clock::timer::Timer;

impl<S: HttpService> Http1<S> {
    /// Waits for the service's response.
    pub(super) fn poll_handling(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
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
    pub(super) fn begin_response(
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

    pub(super) fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
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

    pub(super) fn poll_discarding(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
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
