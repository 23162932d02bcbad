//! A response body that completes the access log line when it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};

use super::catch_panic::catch_panic;
use super::line::LogLine;
use crate::metrics::Metrics;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of the inner service, or of the response after a panic.
#[derive(Debug)]
pub(crate) struct LoggedBody<B> {
    body: Either<B, Full<Bytes>>,
    /// `None` if the request is neither logged nor traced.
    line: Option<Box<LogLine>>,
}

impl<B> LoggedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    pub(super) fn new(body: Either<B, Full<Bytes>>, line: Option<Box<LogLine>>) -> Self {
        let mut body = Self { body, line };
        body.record_end();
        body
    }

    fn record_end(&mut self) {
        if let Some(line) = &mut self.line
            && self.body.is_end_stream()
        {
            line.complete();
        }
    }

    fn record_frame(&mut self, frame: Option<&Result<Frame<Bytes>, BoxError>>) {
        let Some(line) = &mut self.line else { return };
        match frame {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => line.record_sent(data.len()),
                None => {
                    if let Some(trailers) = frame.trailers_ref() {
                        line.record_grpc_status(trailers);
                    }
                    line.complete();
                }
            },
            Some(Err(_)) => line.end_early("broken_off"),
            None => line.complete(),
        }
        self.record_end();
    }
}

impl<B> Body for LoggedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Ok(polled) = catch_panic(|| Pin::new(&mut self.body).poll_frame(cx)) else {
            Metrics::panicked();
            self.body = Either::Right(Full::default());
            if let Some(line) = &mut self.line {
                line.end_early("panicked");
            }
            return Poll::Ready(Some(Err("panicked".into())));
        };
        let frame = ready!(polled);
        self.record_frame(frame.as_ref());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
