//! The beginning of a body, kept until an answer begins: with it, a request that the upstream did not look at is sent again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::super::body::{BoxError, RequestBody};

/// The longest body that is kept. The bytes are those that were sent, not a copy.
const MOST: usize = 64 * 1024;

/// What has been sent of a body.
#[derive(Debug, Default)]
pub(super) struct ReplayBuffer {
    data: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    bytes: usize,
    /// It is longer than may be kept.
    too_long: bool,
}

/// What was sent before, and then the rest.
struct ReplayBody {
    sent: ReplayBuffer,
    rest: RequestBody,
}

impl ReplayBuffer {
    pub(super) fn note(&mut self, data: &Bytes) {
        self.bytes += data.len();
        self.too_long |= self.bytes > MOST;
        if self.too_long {
            self.data.clear();
        } else {
            self.data.push_back(data.clone());
        }
    }

    pub(super) fn note_trailers(&mut self, trailers: &HeaderMap) {
        self.trailers = Some(trailers.clone());
    }

    /// Makes the body whole again; false if it cannot be.
    pub(super) fn give_back(self, body: &mut RequestBody) -> bool {
        if self.too_long {
            return false;
        }
        if !self.data.is_empty() || self.trailers.is_some() {
            body.replace(|rest| ReplayBody { sent: self, rest });
        }
        true
    }
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(data) = self.sent.data.pop_front() {
            self.sent.bytes -= data.len();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = self.sent.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.sent.data.is_empty() && self.sent.trailers.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, sent) = (self.rest.size_hint(), self.sent.bytes as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + sent);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + sent);
        }
        hint
    }
}
