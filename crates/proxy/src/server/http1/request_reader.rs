//! Reads the requests of an HTTP/1 connection. The connection and the request body share the reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Response, Version};
use http_body::Frame;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use crate::http::http1::{
    Framing, ParsedRequest, Piece, Readable, RemainingBody, WriteBuffer, poll_head_bytes, write_informational,
};
use crate::server::metered_socket::MeteredSocket;
use crate::transport::{BodyData, Relay};
use crate::upstream::InformationalSink;
use tidegate_layer::local_response::LocalResponse;

/// The response to `Expect: 100-continue`.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How many bytes of an unread body are discarded so that the connection can be reused. Discarding more would cost
/// more than a new connection.
pub(super) const MAX_DISCARDED: u64 = 256 * 1024;

/// How many bytes of further requests are read while one is handled, to notice the end of the connection.
const MAX_READ_AHEAD: usize = 32 * 1024;

/// A connection and the bytes read from it. It must be smaller than the task of an idle connection: see
/// docs/internals/performance.md.
#[derive(Debug)]
pub(super) struct RequestReader {
    pub(super) stream: MeteredSocket,
    /// Bytes read and not consumed yet.
    pub(super) unread: Bytes,
    /// The rest of the current request's body.
    pub(super) remaining: RemainingBody,
    /// The client expects `100 Continue` before it sends its body.
    expects_continue: bool,
    /// The client accepts informational (1xx) responses.
    accepts_informational: bool,
    /// Informational responses that are not written yet. Boxed, because they are rare.
    informational: Option<Box<WriteBuffer>>,
    /// The body was incomplete or malformed, so the start of the next request is unknown.
    is_broken: bool,
    /// The body timed out.
    is_timed_out: bool,
    /// The task that waits for more of the body.
    body_waker: Option<Waker>,
    /// The number of the current request.
    pub(super) request: u32,
}

impl RequestReader {
    pub(super) fn new(mut stream: MeteredSocket) -> Self {
        let (unread, remaining) = (stream.take_prefetched(), RemainingBody::Length(0));
        Self {
            stream,
            unread,
            remaining,
            expects_continue: false,
            accepts_informational: false,
            informational: None,
            is_broken: false,
            is_timed_out: false,
            body_waker: None,
            request: 0,
        }
    }

    /// Consumes the head of a request. Returns the framing of its body.
    pub(super) fn begin_request(&mut self, head: &ParsedRequest) -> Framing {
        _ = self.unread.split_to(head.length);
        let framing = Framing::of_request(head.framing_fields);
        self.remaining = RemainingBody::new(framing);
        self.expects_continue = head.expects_continue && !self.remaining.is_end();
        self.accepts_informational = head.request.version() == Version::HTTP_11;
        self.request += 1;
        framing
    }

    /// Returns a relay for a body with this framing, if the kernel can move it.
    pub(super) fn relay(&self, framing: Framing) -> Option<Relay> {
        match framing {
            Framing::Length(length) if self.stream.socket().relayable().is_some() => Relay::new(length),
            _ => None,
        }
    }

    /// Upgrades the connection: all further bytes belong to another protocol, until the client closes its half.
    pub(super) fn set_upgraded(&mut self) {
        self.remaining = RemainingBody::UntilClose;
        self.stream.activity().set_upgraded();
    }

    /// Returns `true` if the connection can be reused after the response. The rest of the body is then read or, if it
    /// is short, discarded. Called when the response begins: the body may still turn out to be malformed.
    pub(super) fn can_reuse(&mut self, has_body_reader: bool) -> bool {
        let is_known = !self.is_broken && !self.expects_continue;
        is_known
            && (has_body_reader
                || self.read_buffered_body()
                || matches!(self.remaining, RemainingBody::Length(..=MAX_DISCARDED)))
    }

    /// Consumes the buffered bytes of the body. Returns `true` if the body has been read to its end.
    pub(super) fn read_buffered_body(&mut self) -> bool {
        while !self.remaining.is_end() && matches!(self.remaining.take(&mut self.unread), Ok(Piece::Data(_))) {}
        self.record_body_end();
        self.remaining.is_end() && !self.is_broken
    }

    /// Reads ahead while a request is handled. Returns `Ready` when the client has closed the connection. Does not
    /// read the bytes of upgraded connections.
    pub(super) fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.remaining.is_end() && self.unread.len() < MAX_READ_AHEAD {
            match ready!(poll_head_bytes(&mut self.stream, &mut self.unread, cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Discards up to `budget` bytes of the body. Returns `true` if it reached the end.
    pub(super) fn poll_discard(&mut self, budget: &mut u64, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.remaining.take(&mut self.unread) {
                Ok(Piece::Data(data)) => match budget.checked_sub(data.len() as u64) {
                    Some(rest) => *budget = rest,
                    None => return Poll::Ready(false),
                },
                Ok(Piece::End(_)) => {
                    self.record_body_end();
                    return Poll::Ready(true);
                }
                Ok(Piece::NeedInput) => {
                    match ready!(self.remaining.poll_more(&mut self.stream, &mut self.unread, cx)) {
                        Ok(true) => {}
                        Ok(false) | Err(_) => return Poll::Ready(false),
                    }
                }
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// Prepares for the response. Drops a pending `100 Continue`, because it would be in the middle of the
    /// response.
    pub(super) fn poll_begin_response(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (self.expects_continue, self.accepts_informational) = (false, false);
        self.poll_informational(cx)
    }

    /// Sends `100 Continue` if the client expects it.
    fn poll_send_continue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.expects_continue) {
            self.informational.get_or_insert_default().bytes().extend_from_slice(CONTINUE);
        }
        self.poll_informational(cx)
    }

    /// Writes the queued informational responses.
    pub(super) fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(bytes) = &mut self.informational {
            ready!(bytes.poll_write(&mut self.stream, cx))?;
            self.informational = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the body of the current request because of a timeout, and wakes its reader.
    pub(super) fn end_upload(&mut self) {
        self.is_timed_out = true;
        if let Some(waker) = self.body_waker.take() {
            waker.wake();
        }
    }

    /// Records that the body of the current request is no longer read.
    pub(super) fn stop_upload_wait(&mut self) {
        self.body_waker = None;
        self.stream.activity().stop_upload_wait();
    }

    /// Returns the response to a malformed, incomplete or late body.
    pub(super) fn body_error(&self) -> Option<LocalResponse> {
        let local_response =
            if self.is_timed_out { LocalResponse::BodyTimedOut } else { LocalResponse::BodyIncomplete };
        self.is_broken.then_some(local_response)
    }

    /// Returns the next frame of the body of the current request.
    pub(super) fn poll_frame(
        &mut self,
        relay: Option<&Relay>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Frame<BodyData>>>> {
        if self.is_timed_out {
            self.is_broken = true;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let polled = self.poll_piece(relay, cx);
        if polled.is_pending() && self.informational.is_none() && !matches!(self.remaining, RemainingBody::UntilClose) {
            self.stream.activity().begin_upload_wait();
            if !self.body_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                self.body_waker = Some(cx.waker().clone());
            }
        }
        self.is_broken |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }

    fn poll_piece(&mut self, relay: Option<&Relay>, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<BodyData>>>> {
        ready!(self.poll_send_continue(cx))?;
        loop {
            let piece = self.remaining.take(&mut self.unread);
            match piece.map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))? {
                Piece::Data(data) => {
                    self.record_body_end();
                    return Poll::Ready(Ok(Some(Frame::data(data.into()))));
                }
                Piece::End(trailers) => {
                    self.record_body_end();
                    return Poll::Ready(Ok(trailers.map(Frame::trailers)));
                }
                Piece::NeedInput => {}
            }
            // The client may wait for more of the response before it sends more of the request.
            _ = Pin::new(&mut self.stream).poll_flush(cx)?;
            if let Some(data) = ready!(self.remaining.poll_relay(relay, self.stream.socket().relayable(), cx))? {
                self.stream.activity().record_read(data.len());
                self.record_body_end();
                return Poll::Ready(Ok(Some(Frame::data(data))));
            }
            if !ready!(self.remaining.poll_more(&mut self.stream, &mut self.unread, cx))? {
                let is_end = matches!(self.remaining, RemainingBody::UntilClose);
                return Poll::Ready(if is_end { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
            }
        }
    }

    fn record_body_end(&self) {
        if self.remaining.is_end() {
            self.stream.activity().end_upload();
        }
    }
}

impl InformationalSink for Mutex<RequestReader> {
    fn send_informational(&self, response: Response<()>) {
        let mut reader = self.lock();
        if reader.accepts_informational {
            write_informational(reader.informational.get_or_insert_default().bytes(), &response);
        }
    }
}

impl Readable for MeteredSocket {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_readable(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters of an `Arc`.
    const COUNTS: usize = 16;

    #[test]
    fn request_reader_is_smaller_than_an_idle_connection() {
        // The next smaller size class of the allocator, so that the two kinds do not share pages.
        assert!(size_of::<Mutex<RequestReader>>() + COUNTS <= 224, "{}", size_of::<Mutex<RequestReader>>());
    }
}
