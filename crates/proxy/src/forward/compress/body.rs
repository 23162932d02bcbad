//! A response body that is compressed while it is streamed.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::encoder::Encoder;
use crate::transport::BodyData;
use crate::upstream::{BoxError, ResponseBody};

/// A body whose data is compressed. If the original breaks off, so does this body.
pub(super) struct CompressedBody {
    body: ResponseBody,
    /// `None` after the last data.
    encoder: Option<Encoder>,
    /// The trailers that follow the last data.
    trailers: Option<HeaderMap>,
    /// Whether the encoder has data that the client has not received.
    is_behind: bool,
}

impl CompressedBody {
    pub(super) fn new(body: ResponseBody, encoder: Encoder) -> Self {
        Self { body, encoder: Some(encoder), trailers: None, is_behind: false }
    }

    /// Returns the next bytes, or `None` after the last ones.
    ///
    /// While the original has more data at once, the encoder may hold data back. When it has none, everything is sent: the
    /// event of an event stream, or the part of a page that is complete.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BoxError>> {
        while let Some(encoder) = &mut self.encoder {
            let bytes = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending if self.is_behind => {
                    self.is_behind = false;
                    encoder.flush()?
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(frame)) => match frame?.into_data() {
                    Ok(data) => {
                        self.is_behind = true;
                        encoder.compress(&data.into_bytes()?)?
                    }
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.finish()?
                    }
                },
                Poll::Ready(None) => self.finish()?,
            };
            if !bytes.is_empty() {
                return Poll::Ready(Ok(Some(bytes)));
            }
        }
        Poll::Ready(Ok(None))
    }

    fn finish(&mut self) -> Result<Bytes, BoxError> {
        self.encoder.take().map_or(Ok(Bytes::new()), |encoder| Ok(encoder.finish()?))
    }
}

impl Body for CompressedBody {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        self.poll_bytes(cx).map(|polled| match polled {
            Ok(Some(bytes)) => Some(Ok(Frame::data(bytes.into()))),
            Ok(None) => self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => {
                self.encoder = None; // nothing follows, not even the end of the compressed data
                self.trailers = None;
                Some(Err(error))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }
}
