//! Sends the body of a request, at the speed of the client and of the upstream's flow control window.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};
use tokio::task::AbortHandle;

use super::super::body::RequestBody;
use super::super::upload::UploadError;

/// The largest piece of a body that is passed to `h2` at once. A small piece leaves bandwidth to other streams.
const MAX_PIECE: usize = 16 * 1024;

/// The state of a request body that is being sent.
#[derive(Debug)]
pub(super) struct Upload {
    stream: SendStream<Bytes>,
    /// Bytes from the client that wait for the window.
    piece: Bytes,
    /// Whether the body ends with this piece.
    is_last: bool,
    is_complete: bool,
}

/// A task that sends the rest of a body while the response is read. Aborts on drop.
#[derive(Debug)]
pub(super) struct UploadTask(AbortHandle);

impl Upload {
    pub(super) fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream, piece: Bytes::new(), is_last: false, is_complete: false }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Sends more. Returns `Ready` once the whole body is sent.
    pub(super) fn poll(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        while !self.is_complete {
            if !self.piece.is_empty() {
                ready!(self.poll_piece(cx))?;
                continue;
            }
            match ready!(Pin::new(&mut *body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => {
                    let data = data.into_bytes().map_err(|error| UploadError::from_body_error(&error.into()))?;
                    (self.piece, self.is_last) = (data, body.is_end_stream());
                    if self.piece.is_empty() && self.is_last {
                        self.end()?;
                    }
                }
                Some(Ok(Err(frame))) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    self.is_complete = true;
                    self.stream.send_trailers(trailers).map_err(|_| UploadError::Upstream)?;
                }
                Some(Err(error)) => return Poll::Ready(Err(UploadError::from_body_error(&error))),
                None => self.end()?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the rest in a separate task, so that neither direction waits for the other.
    pub(super) fn send_in_background(mut self, mut body: RequestBody) -> UploadTask {
        let task = tokio::spawn(async move {
            let sent = poll_fn(|cx| match self.poll(&mut body, cx) {
                Poll::Pending => self.stream.poll_reset(cx).map(|_| Ok(())),
                sent => sent,
            });
            if sent.await.is_err() {
                self.stream.send_reset(Reason::CANCEL); // the body is incomplete
            }
        });
        UploadTask(task.abort_handle())
    }

    /// Sends as much of the piece as fits into the window.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        self.stream.reserve_capacity(self.piece.len().min(MAX_PIECE));
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                _ => return Poll::Ready(Err(UploadError::Upstream)),
            }
        }
        let some = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
        self.is_complete = self.is_last && self.piece.is_empty();
        let sent = self.stream.send_data(some, self.is_complete);
        Poll::Ready(sent.map_err(|_| UploadError::Upstream))
    }

    fn end(&mut self) -> Result<(), UploadError> {
        self.is_complete = true;
        self.stream.send_data(Bytes::new(), true).map_err(|_| UploadError::Upstream)
    }
}

impl UploadTask {
    /// Returns `true` if the task has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
