//! What goes back to the client: an upstream's body as it comes, or a few bytes of our own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

use crate::upstream::ResponseBody;

/// The body of an answer.
#[derive(Debug)]
pub struct Body(Source);

#[derive(Debug)]
enum Source {
    Upstream(ResponseBody),
    Own(Full<Bytes>),
}

impl From<ResponseBody> for Body {
    fn from(body: ResponseBody) -> Self {
        Self(Source::Upstream(body))
    }
}

impl From<Full<Bytes>> for Body {
    fn from(body: Full<Bytes>) -> Self {
        Self(Source::Own(body))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.0 {
            Source::Upstream(body) => Pin::new(body).poll_frame(cx),
            Source::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Upstream(body) => body.is_end_stream(),
            Source::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Upstream(body) => body.size_hint(),
            Source::Own(body) => body.size_hint(),
        }
    }
}
