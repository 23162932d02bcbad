//! The body of an upstream's answer, on its way to the client.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::body::RequestBody;
use super::pool::Lease;
use super::upload::Upload;
use crate::http1::{Framing, Left, Piece};

/// An answer of which the head has been read, and the connection that it comes on.
#[derive(Debug)]
pub(crate) struct Download {
    /// None once all is read.
    lease: Option<Lease>,
    left: Left,
    /// Whether the connection may serve another request after this one.
    keeps_open: bool,
    /// What is still being sent: an answer may begin before its request has ended.
    upload: Option<(Upload, RequestBody)>,
}

impl Download {
    pub(super) fn new(lease: Lease, framing: Framing, keeps_open: bool, upload: Option<(Upload, RequestBody)>) -> Self {
        let left = Left::all_of(framing);
        let mut download = Self { lease: Some(lease), left, keeps_open, upload };
        download.end_if_read();
        download
    }

    /// All of it, if it is here already. Its connection is free again then.
    pub(super) fn whole(&mut self) -> Option<Bytes> {
        let Left::Length(length) = self.left else { return None };
        let Some(lease) = &mut self.lease else { return (length == 0).then(Bytes::new) };
        let unread = lease.connection().unread();
        if unread.len() as u64 != length {
            return None;
        }
        let body = std::mem::take(unread);
        self.left = Left::Length(0);
        self.end_if_read();
        Some(body)
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.poll_upload(cx);
        let polled = ready!(self.poll_piece(cx));
        if polled.is_err() {
            self.lease = None;
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
        let (Some(lease), Some((upload, body))) = (&mut self.lease, &mut self.upload) else { return };
        if let Poll::Ready(sent) = upload.poll(lease.connection(), body, cx) {
            self.keeps_open &= sent.is_ok();
            self.upload = None;
        }
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
                Piece::Hungry => {}
            }
            if !ready!(connection.poll_more(&self.left, cx))? {
                self.lease = None;
                let is_end = matches!(self.left, Left::UntilClose);
                return Poll::Ready(if is_end { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
            }
        }
    }

    /// Readers that were told the length do not ask for more after the last of it.
    fn end_if_read(&mut self) {
        if matches!(self.left, Left::Length(0)) {
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
