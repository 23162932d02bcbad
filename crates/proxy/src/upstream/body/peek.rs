//! The body of a request that the rate limit layer reads before it decides. It is forwarded afterwards.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{BoxError, RequestBody, Stream};
use crate::transport::BodyData;
use tidegate_layer::metering::{PeekBody, PeekError, PeekFuture};

/// The longest time until the whole body has been read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A body that is shared by its reader and the request.
struct PeekedBody(Mutex<State>);

struct State {
    stream: Stream,
    /// The frames that were read and not forwarded yet.
    frames: VecDeque<Frame<BodyData>>,
    has_ended: bool,
}

impl RequestBody {
    /// Returns a reader of a body, if it is one of this type, and not empty. For the rate limit layer, which is generic over
    /// bodies.
    pub fn peek_any(body: &mut dyn Any) -> Option<Arc<dyn PeekBody>> {
        body.downcast_mut::<Self>()?.peek()
    }

    /// Returns a reader of the body. Returns `None` if the request has no body.
    fn peek(&mut self) -> Option<Arc<dyn PeekBody>> {
        if self.is_end_stream() {
            return None;
        }
        let state = State { stream: self.stream.take()?, frames: VecDeque::new(), has_ended: false };
        let peeked = Arc::new(PeekedBody(Mutex::new(state)));
        self.stream = Some(Box::pin(SharedStream(Arc::clone(&peeked))));
        // A relay moves bytes that no reader sees.
        if let Some(sending) = &mut self.sending {
            sending.relay = None;
        }
        Some(peeked)
    }
}

impl State {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(self.stream.as_mut().poll_frame(cx));
        self.has_ended = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn bytes(&self) -> u64 {
        self.frames.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum()
    }
}

impl PeekedBody {
    /// Reads until the end of the body, and keeps what it reads.
    async fn read_all(&self, max: usize) -> Result<Bytes, PeekError> {
        let mut body = BytesMut::new();
        while let Some(frame) = poll_fn(|cx| self.0.lock().poll_frame(cx)).await {
            let frame = frame.map_err(|_| PeekError::Incomplete)?;
            let Some(data) = frame.data_ref() else {
                self.0.lock().frames.push_back(frame);
                continue;
            };
            let bytes = data.clone().into_bytes().map_err(|_| PeekError::Incomplete)?;
            if body.len() + bytes.len() > max {
                return Err(PeekError::TooLong);
            }
            body.extend_from_slice(&bytes);
            self.0.lock().frames.push_back(frame);
        }
        Ok(body.freeze())
    }
}

impl PeekBody for PeekedBody {
    fn read(&self, max: usize) -> PeekFuture<'_> {
        Box::pin(async move { timeout(READ_TIMEOUT, self.read_all(max)).await.unwrap_or(Err(PeekError::TimedOut)) })
    }

    fn replace(&self, body: Bytes) {
        let mut state = self.0.lock();
        state.frames.retain(|frame| !frame.is_data());
        state.frames.push_front(Frame::data(body.into()));
        state.has_ended = true;
    }
}

impl fmt::Debug for PeekedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekedBody").finish_non_exhaustive()
    }
}

/// The stream of a request whose body was read.
struct SharedStream(Arc<PeekedBody>);

impl Body for SharedStream {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        let mut state = self.0.0.lock();
        match state.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => state.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.0.lock();
        state.frames.is_empty() && (state.has_ended || state.stream.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.0.lock();
        let read = state.bytes();
        if state.has_ended {
            return SizeHint::with_exact(read);
        }
        let mut hint = state.stream.size_hint();
        // The upper bound first: it must never be below the lower one.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + read);
        }
        hint.set_lower(hint.lower() + read);
        hint
    }
}
