//! The reading half of a client's connection, shared by the connection and the request body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use crate::http1::{Left, Outgoing, Piece, Readable, write_information};
use crate::local_response::LocalResponse;
use crate::server::metered_socket::MeteredSocket;
use crate::upstream::InformationalSink;

/// What a client that waits before it sends its body is told.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The most of a body that nobody wants which is thrown away for the sake of the next request. A longer one costs more
/// than a new connection.
pub(super) const MAX_DISCARDED: u64 = 256 * 1024;

/// A connection and the bytes read from it. Smaller than the task of an idle connection: see docs/internals/performance.md.
#[derive(Debug)]
pub(super) struct RequestReader {
    pub(super) stream: MeteredSocket,
    /// Bytes read and not consumed yet.
    pub(super) unread: Bytes,
    /// What is left of the present request's body.
    pub(super) left: Left,
    /// The client waits to be asked for its body.
    expects_continue: bool,
    /// The client may be told something before its answer.
    accepts_informational: bool,
    /// What is left to be written of that. Boxed, as there hardly ever is any.
    informational: Option<Box<Outgoing>>,
    /// The body was cut off or malformed, so where the next request begins is unknown.
    is_broken: bool,
    /// The body timed out.
    is_timed_out: bool,
    /// The task that waits for more of the body.
    body_waker: Option<Waker>,
    /// The number of the present request.
    pub(super) request: u32,
}

/// The body of a request. It ends with its request, and reads nothing of the next.
#[derive(Debug)]
pub(super) struct ClientBody {
    body_waker: Arc<Mutex<RequestReader>>,
    request: u32,
}

impl RequestReader {
    pub(super) fn new(mut stream: MeteredSocket) -> Self {
        let (unread, left) = (stream.take_prefetched(), Left::Length(0));
        Self {
            stream,
            unread,
            left,
            expects_continue: false,
            accepts_informational: false,
            informational: None,
            is_broken: false,
            is_timed_out: false,
            body_waker: None,
            request: 0,
        }
    }

    /// Begins a request.
    pub(super) fn begin_request(&mut self, left: Left, expects_continue: bool, accepts_informational: bool) {
        self.expects_continue = expects_continue && !left.is_end();
        self.accepts_informational = accepts_informational;
        self.left = left;
        self.request += 1;
    }

    /// All that comes from now on is of another protocol, until the client closes its half.
    pub(super) fn set_upgraded(&mut self) {
        self.left = Left::UntilClose;
        self.stream.activity().set_upgraded();
    }

    /// Whether the next request can be reached, as far as is known when an answer begins. What is left of the body is
    /// read by somebody, or else thrown away if it is short.
    pub(super) fn can_reuse(&mut self, has_body_reader: bool) -> bool {
        let is_known = !self.is_broken && !self.expects_continue;
        is_known
            && (has_body_reader || self.read_buffered_body() || matches!(self.left, Left::Length(..=MAX_DISCARDED)))
    }

    /// Whether all of the body has been read; of what is here, it is read now.
    pub(super) fn read_buffered_body(&mut self) -> bool {
        while !self.left.is_end() && matches!(self.left.take(&mut self.unread), Ok(Piece::Data(_))) {}
        self.record_body_end();
        self.left.is_end() && !self.is_broken
    }

    /// Throws away what is left of the body, of which so much may be here; ready with whether its end was reached.
    pub(super) fn poll_discard(&mut self, budget: &mut u64, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.left.take(&mut self.unread) {
                Ok(Piece::Data(data)) => match budget.checked_sub(data.len() as u64) {
                    Some(rest) => *budget = rest,
                    None => return Poll::Ready(false),
                },
                Ok(Piece::End(_)) => {
                    self.record_body_end();
                    return Poll::Ready(true);
                }
                Ok(Piece::NeedInput) => match ready!(self.left.poll_more(&mut self.stream, &mut self.unread, cx)) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return Poll::Ready(false),
                },
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// An answer is about to be written: a client that was not asked for its body until now is not asked any more, as
    /// that would stand in the middle of the answer.
    pub(super) fn poll_begin_response(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (self.expects_continue, self.accepts_informational) = (false, false);
        self.poll_informational(cx)
    }

    /// Asks a client for its body that waits for that.
    fn poll_send_continue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.expects_continue) {
            self.informational.get_or_insert_default().bytes().extend_from_slice(CONTINUE);
        }
        self.poll_informational(cx)
    }

    /// Writes what comes before the answer.
    pub(super) fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(bytes) = &mut self.informational {
            ready!(bytes.poll_write(&mut self.stream, cx))?;
            self.informational = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the body of the present request. Whoever waits for it is told.
    pub(super) fn end_upload(&mut self) {
        self.is_timed_out = true;
        if let Some(waker) = self.body_waker.take() {
            waker.wake();
        }
    }

    /// What is wrong with the body, if it broke off or was none.
    pub(super) fn body_error(&self) -> Option<LocalResponse> {
        let local_response =
            if self.is_timed_out { LocalResponse::BodyTimedOut } else { LocalResponse::BodyIncomplete };
        self.is_broken.then_some(local_response)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        if self.is_timed_out {
            self.is_broken = true;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let polled = self.poll_piece(cx);
        if polled.is_pending() && self.informational.is_none() && !matches!(self.left, Left::UntilClose) {
            self.stream.activity().begin_upload_wait();
            if !self.body_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                self.body_waker = Some(cx.waker().clone());
            }
        }
        self.is_broken |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        ready!(self.poll_send_continue(cx))?;
        loop {
            let piece = self.left.take(&mut self.unread);
            match piece.map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))? {
                Piece::Data(data) => {
                    self.record_body_end();
                    return Poll::Ready(Ok(Some(Frame::data(data))));
                }
                Piece::End(trailers) => {
                    self.record_body_end();
                    return Poll::Ready(Ok(trailers.map(Frame::trailers)));
                }
                Piece::NeedInput => {}
            }
            // The client may wait for the rest of what it is told.
            _ = Pin::new(&mut self.stream).poll_flush(cx)?;
            if !ready!(self.left.poll_more(&mut self.stream, &mut self.unread, cx))? {
                let is_end = matches!(self.left, Left::UntilClose);
                return Poll::Ready(if is_end { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
            }
        }
    }

    fn record_body_end(&self) {
        if self.left.is_end() {
            self.stream.activity().end_upload();
        }
    }
}

impl ClientBody {
    /// The body of the present request.
    pub(super) fn new(body_waker: &Arc<Mutex<RequestReader>>) -> Self {
        Self { body_waker: Arc::clone(body_waker), request: body_waker.lock().request }
    }
}

impl InformationalSink for Mutex<RequestReader> {
    fn send_informational(&self, answer: Response<()>) {
        let mut body_waker = self.lock();
        if body_waker.accepts_informational {
            write_information(body_waker.informational.get_or_insert_default().bytes(), &answer);
        }
    }
}

/// On drop, the body is no longer waited for.
impl Drop for ClientBody {
    fn drop(&mut self) {
        let mut body_waker = self.body_waker.lock();
        if body_waker.request == self.request {
            body_waker.body_waker = None;
            body_waker.stream.activity().stop_upload_wait();
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut body_waker = self.body_waker.lock();
        if body_waker.request != self.request {
            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
        }
        body_waker.poll_frame(cx).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        let body_waker = self.body_waker.lock();
        body_waker.request == self.request && body_waker.left.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.body_waker.lock().left.size_hint()
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

    /// The counts of an `Arc`.
    const COUNTS: usize = 16;

    #[test]
    fn a_connection_in_use_takes_less_than_the_256_bytes_of_one_that_rests() {
        // The allocator's next smaller size: pages of the two are not shared.
        assert!(size_of::<Mutex<RequestReader>>() + COUNTS <= 224, "{}", size_of::<Mutex<RequestReader>>());
    }
}
