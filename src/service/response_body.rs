//! The body of a response: at most one piece, and trailers for gRPC.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

/// The body of a response to a call.
#[derive(Debug, Default)]
pub(crate) struct CallBody {
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl CallBody {
    /// Creates a body without trailers.
    pub(super) fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), trailers: None }
    }

    /// Adds trailers.
    pub(super) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self { trailers: Some(trailers), ..self }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = std::mem::take(&mut self.data);
        if !data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.len() as u64)
    }
}

/// Returns a response with this text and a newline for terminals.
pub(super) fn text(status: StatusCode, text: &str) -> Response<CallBody> {
    let mut response = Response::new(CallBody::new(format!("{text}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
