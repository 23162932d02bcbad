//! The body of a response: at most one piece, and trailers for gRPC. Only a stream of gRPC has more.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

/// The body of a response to a call.
#[derive(Debug, Default)]
pub(crate) struct CallBody {
    data: Bytes,
    trailers: Option<HeaderMap>,
    /// The frames of a stream, in place of the other fields.
    frames: Option<Frames>,
}

/// The frames of a stream, which ends with trailers.
struct Frames(Pin<Box<dyn Stream<Item = Frame<Bytes>> + Send>>);

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

impl CallBody {
    /// Creates a body without trailers.
    pub(super) fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// Creates a body from the frames of a stream, the last of which has trailers.
    pub(super) fn from_frames(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Self {
        Self { frames: Some(Frames(Box::pin(frames))), ..Self::default() }
    }

    /// Adds trailers.
    pub(super) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self { trailers: Some(trailers), ..self }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(Frames(frames)) = &mut self.frames {
            return frames.poll_next_unpin(cx).map(|frame| frame.map(Ok));
        }
        let data = std::mem::take(&mut self.data);
        if !data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none() && self.frames.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.frames {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.data.len() as u64),
        }
    }
}

/// Returns a response with this text and a newline for terminals.
pub(super) fn text(status: StatusCode, text: &str) -> Response<CallBody> {
    let mut response = Response::new(CallBody::new(format!("{text}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
