//! The reading half of a client's connection: shared by whoever serves it and the body that is being read from it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use crate::http1::{Left, Piece, Readable};
use crate::server::stream::Watched;

/// What a client that waits before it sends its body is told.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection, and what was read from it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: Watched,
    /// Read and not used yet.
    pub(super) unread: Bytes,
    /// What is left of the present request's body.
    pub(super) left: Left,
    /// What is left to be said to a client that waits before it sends the body.
    pub(super) invitation: &'static [u8],
    /// The number of the present request.
    pub(super) request: u64,
}

/// The body of a request. It ends with its request: what comes later is another's.
#[derive(Debug)]
pub(super) struct ClientBody {
    wire: Arc<Mutex<Wire>>,
    request: u64,
}

impl Wire {
    pub(super) fn new(stream: Watched) -> Self {
        Self { stream, unread: Bytes::new(), left: Left::Length(0), invitation: b"", request: 0 }
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, left: Left, expects_continue: bool) {
        self.invitation = if expects_continue && !left.is_end() { CONTINUE } else { b"" };
        self.left = left;
        self.request += 1;
    }

    /// Whether all of the body has been read; of what is here, it is read now.
    pub(super) fn is_read(&mut self) -> bool {
        while let (false, Ok(Piece::Data(_))) = (self.left.is_end(), self.left.take(&mut self.unread)) {}
        self.left.is_end()
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        while !self.invitation.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, self.invitation))?;
            self.invitation = &self.invitation[count..];
        }
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
                Piece::Hungry => {}
            }
            if !ready!(self.left.poll_more(&mut self.stream, &mut self.unread, cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
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
        self.socket().poll_read_ready(cx)
    }
}
