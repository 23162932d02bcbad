//! A response body that completes the access log line when it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};

use super::catch_panic::catch_panic;
use super::line::LogLine;
use crate::transport::{BodyData, poll_body_data};
use crate::upstream::BoxError;
use tidegate_metrics::Metrics;

/// The body of the inner service, or of a response of the gateway itself.
#[derive(Debug)]
pub struct LoggedBody<B> {
    body: Either<B, Full<Bytes>>,
    /// `None` if the request is neither logged, traced nor counted.
    line: Option<Box<LogLine>>,
}

impl<B> LoggedBody<B>
where
    B: Body<Data: Into<BodyData>, Error: Into<BoxError>>,
{
    pub(super) fn new(body: Either<B, Full<Bytes>>, line: Option<Box<LogLine>>) -> Self {
        let mut body = Self { body, line };
        body.record_end();
        body
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>>
    where
        B: Unpin,
    {
        match &mut self.body {
            Either::Left(body) => poll_body_data(body, cx).map_err(Into::into),
            Either::Right(body) => poll_body_data(body, cx).map_err(|never| match never {}),
        }
    }

    fn record_end(&mut self) {
        if let Some(line) = &mut self.line
            && has_ended(&self.body)
        {
            line.complete();
        }
    }

    fn record_frame(&mut self, frame: Option<&Result<Frame<BodyData>, BoxError>>) {
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
    B: Body<Data: Into<BodyData>, Error: Into<BoxError>> + Unpin,
{
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        let Ok(polled) = catch_panic(|| self.poll_body(cx)) else {
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
        has_ended(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Either::Left(body) => body.size_hint(),
            Either::Right(body) => body.size_hint(),
        }
    }
}

fn has_ended<B: Body>(body: &Either<B, Full<Bytes>>) -> bool {
    match body {
        Either::Left(body) => body.is_end_stream(),
        Either::Right(body) => body.is_end_stream(),
    }
}
