//! Reads the body of an HTTP/1.1 response.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::body::RequestBody;
use super::pool::Lease;
use super::upload::Upload;
use crate::http::http1::{Framing, Piece, RemainingBody};
use crate::transport::{BodyData, Relay};
use tidegate_metrics::BrokenResponse;

/// The body of a response whose head was read, with its connection.
#[derive(Debug)]
pub(crate) struct Download {
    /// `None` once the whole body is read.
    lease: Option<Lease>,
    remaining: RemainingBody,
    /// Whether the connection may serve another request.
    can_reuse: bool,
    /// The rest of the request: a response may begin before its request has ended.
    upload: Option<Box<(Upload, RequestBody)>>,
    /// Since when the gateway waits for the upstream: it sends none of the response and takes none of the request.
    silent_since: Option<Instant>,
    /// Moves the body if its writer has a plaintext socket.
    relay: Option<Relay>,
}

impl Download {
    pub(super) fn new(
        mut lease: Lease,
        framing: Framing,
        can_reuse: bool,
        upload: Option<Box<(Upload, RequestBody)>>,
    ) -> Self {
        let remaining = RemainingBody::new(framing);
        let relay = match framing {
            Framing::Length(length) if lease.connection().is_relayable() => Relay::new(length),
            _ => None,
        };
        let mut download = Self { lease: Some(lease), remaining, can_reuse, upload, silent_since: None, relay };
        download.finish_if_read();
        download
    }

    /// Returns the whole body and frees the connection, if the body was read together with the head.
    pub(super) fn take_buffered_body(&mut self) -> Option<Bytes> {
        let RemainingBody::Length(length) = self.remaining else { return None };
        let Some(lease) = &mut self.lease else { return (length == 0).then(Bytes::new) };
        let unread = lease.connection().unread();
        if unread.len() as u64 != length {
            return None;
        }
        let body = std::mem::take(unread);
        self.remaining = RemainingBody::Length(0);
        self.finish_if_read();
        Some(body)
    }

    /// Returns the relay that can move the body.
    pub(super) fn relay(&self) -> Option<&Relay> {
        self.relay.as_ref()
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<BodyData>>>> {
        self.poll_upload(cx);
        let polled = match self.poll_piece(cx) {
            Poll::Ready(polled) => polled,
            Poll::Pending => Err(ready!(self.poll_silence(cx))),
        };
        self.silent_since = None;
        if let Err(error) = &polled {
            self.fail(error);
        }
        Poll::Ready(polled.transpose())
    }

    pub(super) fn is_end(&self) -> bool {
        self.lease.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.remaining.size_hint()
    }

    /// Sends the rest of the request. If the upstream takes no more of it, the response still counts.
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let (Some(lease), Some(upload)) = (&mut self.lease, &mut self.upload) else { return };
        let (upload, body) = &mut **upload;
        let connection = lease.connection();
        connection.has_written = false;
        let polled = upload.poll(connection, body, cx);
        if connection.has_written {
            self.silent_since = None;
        }
        if let Poll::Ready(sent) = polled {
            self.can_reuse &= sent.is_ok();
            self.upload = None;
        }
    }

    /// Returns `Ready` if the upstream has been silent for `timeouts.idle`, while the reader of the response waited all
    /// that time.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(io::ErrorKind::NotConnected.into()) };
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        lease.poll_idle_timeout(since, cx).map(|()| io::ErrorKind::TimedOut.into())
    }

    /// Closes the connection and records the error.
    fn fail(&mut self, error: &io::Error) {
        let Some(lease) = self.lease.take() else { return };
        let cause = match error.kind() {
            io::ErrorKind::TimedOut => BrokenResponse::Silent,
            io::ErrorKind::InvalidData => BrokenResponse::Malformed,
            _ => BrokenResponse::Closed,
        };
        lease.record_broken_body(cause, error);
    }

    /// Reads the next frame. `None` is the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<BodyData>>>> {
        loop {
            let Some(lease) = &mut self.lease else { return Poll::Ready(Ok(None)) };
            let connection = lease.connection();
            match connection.take_piece(&mut self.remaining)? {
                Piece::Data(data) => {
                    self.finish_if_read();
                    return Poll::Ready(Ok(Some(Frame::data(data.into()))));
                }
                Piece::End(trailers) => {
                    self.finish();
                    return Poll::Ready(Ok(trailers.map(Frame::trailers)));
                }
                Piece::NeedInput => {}
            }
            if let Some(data) = ready!(connection.poll_relay(&mut self.remaining, self.relay.as_ref(), cx))? {
                self.finish_if_read();
                return Poll::Ready(Ok(Some(Frame::data(data))));
            }
            if !ready!(connection.poll_more(&self.remaining, cx))? {
                if !matches!(self.remaining, RemainingBody::UntilClose) {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                self.lease = None;
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Finishes after the last byte of a body of known length: its reader does not poll again.
    fn finish_if_read(&mut self) {
        if matches!(self.remaining, RemainingBody::Length(0)) {
            self.finish();
        }
    }

    /// Returns the connection to the pool, unless the request is still being sent.
    fn finish(&mut self) {
        if let Some(lease) = self.lease.take()
            && self.can_reuse
            && self.upload.is_none()
        {
            lease.release();
        }
    }
}
