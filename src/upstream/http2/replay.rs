//! Buffers the start of a request body until a response begins, so that a request that the upstream did not process can
//! be sent again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::super::body::{BoxError, RequestBody};

/// The largest body that is buffered. The buffer shares the bytes with `h2`; it does not copy them.
const MAX_BYTES: usize = 64 * 1024;

/// The bytes and trailers of a body that were sent.
#[derive(Debug, Default)]
pub(super) struct ReplayBuffer {
    data: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    bytes: usize,
    /// Whether the body is longer than [`MAX_BYTES`].
    is_too_long: bool,
}

/// A body that first yields the buffered bytes, then the rest.
struct ReplayBody {
    buffer: ReplayBuffer,
    rest: RequestBody,
}

impl ReplayBuffer {
    pub(super) fn record_data(&mut self, data: &Bytes) {
        self.bytes += data.len();
        self.is_too_long |= self.bytes > MAX_BYTES;
        if self.is_too_long {
            self.data.clear();
        } else {
            self.data.push_back(data.clone());
        }
    }

    pub(super) fn record_trailers(&mut self, trailers: &HeaderMap) {
        self.trailers = Some(trailers.clone());
    }

    /// Restores the complete body. Returns `false` if it is too long.
    pub(super) fn restore(self, body: &mut RequestBody) -> bool {
        if self.is_too_long {
            return false;
        }
        if !self.data.is_empty() || self.trailers.is_some() {
            body.replace(|rest| ReplayBody { buffer: self, rest });
        }
        true
    }
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(data) = self.buffer.data.pop_front() {
            self.buffer.bytes -= data.len();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = self.buffer.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.buffer.data.is_empty() && self.buffer.trailers.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, buffered) = (self.rest.size_hint(), self.buffer.bytes as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + buffered);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + buffered);
        }
        hint
    }
}
