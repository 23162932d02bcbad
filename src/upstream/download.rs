//! The body of an upstream's answer, on its way to the client.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::body::RequestBody;
use super::pool::Lease;
use super::upload::Upload;
use crate::http1::{Framing, Piece, RemainingBody};
use crate::metrics::BrokenOff;

/// An answer of which the head has been read, and the connection that it comes on.
#[derive(Debug)]
pub(crate) struct Download {
    /// None once all is read.
    lease: Option<Lease>,
    left: RemainingBody,
    /// Whether the connection may serve another request after this one.
    keeps_open: bool,
    /// What is still being sent: an answer may begin before its request has ended.
    upload: Option<Box<(Upload, RequestBody)>>,
    /// Since when the upstream has been waited for: it brings none of the answer, nor takes any of the request.
    silent_since: Option<Instant>,
}

impl Download {
    pub(super) fn new(
        lease: Lease,
        framing: Framing,
        keeps_open: bool,
        upload: Option<Box<(Upload, RequestBody)>>,
    ) -> Self {
        let left = RemainingBody::new(framing);
        let mut download = Self { lease: Some(lease), left, keeps_open, upload, silent_since: None };
        download.end_if_read();
        download
    }

    /// The whole body, if it was read with the head; its connection is free again then.
    pub(super) fn whole(&mut self) -> Option<Bytes> {
        let RemainingBody::Length(length) = self.left else { return None };
        let Some(lease) = &mut self.lease else { return (length == 0).then(Bytes::new) };
        let unread = lease.connection().unread();
        if unread.len() as u64 != length {
            return None;
        }
        let body = std::mem::take(unread);
        self.left = RemainingBody::Length(0);
        self.end_if_read();
        Some(body)
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.poll_upload(cx);
        let polled = match self.poll_piece(cx) {
            Poll::Ready(polled) => polled,
            Poll::Pending => Err(ready!(self.poll_silent(cx))),
        };
        self.silent_since = None;
        if let Err(error) = &polled {
            self.break_off(error);
        }
        Poll::Ready(polled.transpose())
    }

    pub(super) fn is_end(&self) -> bool {
        self.lease.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.left.size_hint()
    }

    /// Sends on what is left of the request. If the upstream takes no more of it, its answer is all that counts.
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let (Some(lease), Some(rest)) = (&mut self.lease, &mut self.upload) else { return };
        let (upload, body) = &mut **rest;
        let connection = lease.connection();
        connection.has_written = false;
        let polled = upload.poll(connection, body, cx);
        if connection.has_written {
            self.silent_since = None;
        }
        if let Poll::Ready(sent) = polled {
            self.keeps_open &= sent.is_ok();
            self.upload = None;
        }
    }

    /// Ready if the upstream has been silent for too long, while the reader of the answer waited for it all that time.
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(io::ErrorKind::NotConnected.into()) };
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        lease.poll_silent(since, cx).map(|()| io::ErrorKind::TimedOut.into())
    }

    /// Closes the connection; the rest of the answer is lost.
    fn break_off(&mut self, error: &io::Error) {
        let Some(lease) = self.lease.take() else { return };
        let why = match error.kind() {
            io::ErrorKind::TimedOut => BrokenOff::Silent,
            io::ErrorKind::InvalidData => BrokenOff::Malformed,
            _ => BrokenOff::Closed,
        };
        lease.broke_off(why, error);
    }

    /// The next frame, or nothing at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        loop {
            let Some(lease) = &mut self.lease else { return Poll::Ready(Ok(None)) };
            let connection = lease.connection();
            match connection.take(&mut self.left)? {
                Piece::Data(data) => {
                    self.end_if_read();
                    return Poll::Ready(Ok(Some(Frame::data(data))));
                }
                Piece::End(trailers) => {
                    self.end();
                    return Poll::Ready(Ok(trailers.map(Frame::trailers)));
                }
                Piece::NeedInput => {}
            }
            if !ready!(connection.poll_more(&self.left, cx))? {
                if !matches!(self.left, RemainingBody::UntilClose) {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                self.lease = None;
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Readers that were told the length do not ask for more after the last of it.
    fn end_if_read(&mut self) {
        if matches!(self.left, RemainingBody::Length(0)) {
            self.end();
        }
    }

    /// Nothing is left to read: the connection may serve the next request, unless it still sends this one.
    fn end(&mut self) {
        if let Some(lease) = self.lease.take()
            && self.keeps_open
            && self.upload.is_none()
        {
            lease.release();
        }
    }
}
