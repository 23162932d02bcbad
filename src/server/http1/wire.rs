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
use crate::server::stream::Watched;
use crate::upstream::Inform;

/// What a client that waits before it sends its body is told.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The most of a body that nobody wants which is thrown away for the sake of the next request. A longer one costs more
/// than a new connection.
pub(super) const DRAINED: u64 = 256 * 1024;

/// A connection and the bytes read from it. Smaller than the task of an idle connection: see docs/internals/performance.md.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: Watched,
    /// Bytes read and not consumed yet.
    pub(super) unread: Bytes,
    /// What is left of the present request's body.
    pub(super) left: Left,
    /// The client waits to be asked for its body.
    waits: bool,
    /// The client may be told something before its answer.
    may_inform: bool,
    /// What is left to be written of that. Boxed, as there hardly ever is any.
    before_answer: Option<Box<Outgoing>>,
    /// The body was cut off or malformed, so where the next request begins is unknown.
    broken: bool,
    /// The body timed out.
    overdue: bool,
    /// The task that waits for more of the body.
    reader: Option<Waker>,
    /// The number of the present request.
    pub(super) request: u32,
}

/// The body of a request. It ends with its request, and reads nothing of the next.
#[derive(Debug)]
pub(super) struct ClientBody {
    wire: Arc<Mutex<Wire>>,
    request: u32,
}

impl Wire {
    pub(super) fn new(mut stream: Watched) -> Self {
        let (unread, left) = (stream.take_ahead(), Left::Length(0));
        Self {
            stream,
            unread,
            left,
            waits: false,
            may_inform: false,
            before_answer: None,
            broken: false,
            overdue: false,
            reader: None,
            request: 0,
        }
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, left: Left, expects_continue: bool, may_inform: bool) {
        self.waits = expects_continue && !left.is_end();
        self.may_inform = may_inform;
        self.left = left;
        self.request += 1;
    }

    /// All that comes from now on is of another protocol, until the client closes its half.
    pub(super) fn switch(&mut self) {
        self.left = Left::UntilClose;
        self.stream.activity().switch();
    }

    /// Whether the next request can be reached, as far as is known when an answer begins. What is left of the body is
    /// read by somebody, or else thrown away if it is short.
    pub(super) fn leads_on(&mut self, is_wanted: bool) -> bool {
        let is_known = !self.broken && !self.waits;
        is_known && (is_wanted || self.is_read() || matches!(self.left, Left::Length(..=DRAINED)))
    }

    /// Whether all of the body has been read; of what is here, it is read now.
    pub(super) fn is_read(&mut self) -> bool {
        while !self.left.is_end() && matches!(self.left.take(&mut self.unread), Ok(Piece::Data(_))) {}
        self.note_end();
        self.left.is_end() && !self.broken
    }

    /// Throws away what is left of the body, of which so much may be here; ready with whether its end was reached.
    pub(super) fn poll_drain(&mut self, budget: &mut u64, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.left.take(&mut self.unread) {
                Ok(Piece::Data(data)) => match budget.checked_sub(data.len() as u64) {
                    Some(rest) => *budget = rest,
                    None => return Poll::Ready(false),
                },
                Ok(Piece::End(_)) => {
                    self.note_end();
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
    pub(super) fn poll_answer_begins(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (self.waits, self.may_inform) = (false, false);
        self.poll_before_answer(cx)
    }

    /// Asks a client for its body that waits for that.
    fn poll_invite(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.waits) {
            self.before_answer.get_or_insert_default().bytes().extend_from_slice(CONTINUE);
        }
        self.poll_before_answer(cx)
    }

    /// Writes what comes before the answer.
    pub(super) fn poll_before_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(bytes) = &mut self.before_answer {
            ready!(bytes.poll_write(&mut self.stream, cx))?;
            self.before_answer = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the body of the present request. Whoever waits for it is told.
    pub(super) fn end_upload(&mut self) {
        self.overdue = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// What is wrong with the body, if it broke off or was none.
    pub(super) fn local_response(&self) -> Option<LocalResponse> {
        let local_response = if self.overdue { LocalResponse::BodyTimedOut } else { LocalResponse::BodyIncomplete };
        self.broken.then_some(local_response)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        if self.overdue {
            self.broken = true;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let polled = self.poll_piece(cx);
        if polled.is_pending() && self.before_answer.is_none() && !matches!(self.left, Left::UntilClose) {
            self.stream.activity().awaits_upload();
            if !self.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                self.reader = Some(cx.waker().clone());
            }
        }
        self.broken |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        ready!(self.poll_invite(cx))?;
        loop {
            let piece = self.left.take(&mut self.unread);
            match piece.map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))? {
                Piece::Data(data) => {
                    self.note_end();
                    return Poll::Ready(Ok(Some(Frame::data(data))));
                }
                Piece::End(trailers) => {
                    self.note_end();
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

    fn note_end(&self) {
        if self.left.is_end() {
            self.stream.activity().end_upload();
        }
    }
}

impl ClientBody {
    /// The body of the present request.
    pub(super) fn new(wire: &Arc<Mutex<Wire>>) -> Self {
        Self { wire: Arc::clone(wire), request: wire.lock().request }
    }
}

impl Inform for Mutex<Wire> {
    fn inform(&self, answer: Response<()>) {
        let mut wire = self.lock();
        if wire.may_inform {
            write_information(wire.before_answer.get_or_insert_default().bytes(), &answer);
        }
    }
}

/// On drop, the body is no longer waited for.
impl Drop for ClientBody {
    fn drop(&mut self) {
        let mut wire = self.wire.lock();
        if wire.request == self.request {
            wire.reader = None;
            wire.stream.activity().leave_upload();
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut wire = self.wire.lock();
        if wire.request != self.request {
            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
        }
        wire.poll_frame(cx).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.wire.lock();
        wire.request == self.request && wire.left.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.wire.lock().left.size_hint()
    }
}

impl Readable for Watched {
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
        assert!(size_of::<Mutex<Wire>>() + COUNTS <= 224, "{}", size_of::<Mutex<Wire>>());
    }
}
