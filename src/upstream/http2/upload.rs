//! The body of a request on its way, as far as the upstream's window and the client let it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};
use tokio::task::AbortHandle;

use super::super::body::RequestBody;
use super::super::upload::UploadError;
use super::replay::ReplayBuffer;

/// The most of a body that is handed over at a time: other streams want some of the connection as well.
const PIECE: usize = 16 * 1024;

/// How far it has come.
#[derive(Debug)]
pub(super) struct Upload {
    stream: SendStream<Bytes>,
    /// What was taken from the client and waits for the window.
    piece: Bytes,
    /// Nothing comes behind it.
    is_last: bool,
    complete: bool,
    /// `None` once an answer has begun.
    sent: Option<ReplayBuffer>,
}

/// The rest of a body that is sent in a task of its own, while the answer is read. On drop, it is sent no further.
#[derive(Debug)]
pub(super) struct UploadTask(AbortHandle);

impl Upload {
    pub(super) fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream, piece: Bytes::new(), is_last: false, complete: false, sent: Some(ReplayBuffer::default()) }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What it has sent, to be sent again.
    pub(super) fn into_sent(self) -> ReplayBuffer {
        self.sent.unwrap_or_default()
    }

    /// Moves on; ready when all is sent, or there is no more to be sent.
    pub(super) fn poll(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        while !self.complete {
            if !self.piece.is_empty() {
                ready!(self.poll_piece(cx))?;
                continue;
            }
            match ready!(Pin::new(&mut *body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => {
                    self.keep(|sent| sent.note(&data));
                    (self.piece, self.is_last) = (data, body.is_end_stream());
                    if self.piece.is_empty() && self.is_last {
                        self.end()?;
                    }
                }
                Some(Ok(Err(frame))) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    self.keep(|sent| sent.note_trailers(&trailers));
                    self.complete = true;
                    self.stream.send_trailers(trailers).map_err(|_| UploadError::Upstream)?;
                }
                Some(Err(error)) => return Poll::Ready(Err(UploadError::of(&error))),
                None => self.end()?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the rest while the answer is read, which may take as long: neither direction waits for the other.
    pub(super) fn go_on(mut self, mut body: RequestBody) -> UploadTask {
        self.sent = None;
        let sending = tokio::spawn(async move {
            let sent = poll_fn(|cx| match self.poll(&mut body, cx) {
                Poll::Pending => self.stream.poll_reset(cx).map(|_| Ok(())),
                sent => sent,
            });
            if sent.await.is_err() {
                self.stream.send_reset(Reason::CANCEL); // half a body is none
            }
        });
        UploadTask(sending.abort_handle())
    }

    /// Hands over as much of the piece as there is a window for.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        self.stream.reserve_capacity(self.piece.len().min(PIECE));
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                _ => return Poll::Ready(Err(UploadError::Upstream)),
            }
        }
        let some = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
        self.complete = self.is_last && self.piece.is_empty();
        let sent = self.stream.send_data(some, self.complete);
        Poll::Ready(sent.map_err(|_| UploadError::Upstream))
    }

    fn end(&mut self) -> Result<(), UploadError> {
        self.complete = true;
        self.stream.send_data(Bytes::new(), true).map_err(|_| UploadError::Upstream)
    }

    fn keep(&mut self, note: impl FnOnce(&mut ReplayBuffer)) {
        if let Some(sent) = &mut self.sent {
            note(sent);
        }
    }
}

impl UploadTask {
    /// Whether there is nothing left to be sent.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
