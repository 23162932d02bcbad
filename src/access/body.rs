//! The body of an answer on its way to the client, and the line that is written when it is over.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};

use super::caught::catch;
use super::line::LogLine;
use crate::metrics::Metrics;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body: the service's own, or that of an answer in its place.
#[derive(Debug)]
pub(crate) struct LoggedBody<B> {
    body: Either<B, Full<Bytes>>,
    /// Nothing, where the access log is off.
    line: Option<Box<LogLine>>,
}

impl<B> LoggedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    pub(super) fn new(body: Either<B, Full<Bytes>>, line: Option<Box<LogLine>>) -> Self {
        let mut answer = Self { body, line };
        answer.note_end();
        answer
    }

    fn note_end(&mut self) {
        if let Some(line) = &mut self.line
            && self.body.is_end_stream()
        {
            line.complete();
        }
    }

    fn note(&mut self, frame: Option<&Result<Frame<Bytes>, BoxError>>) {
        let Some(line) = &mut self.line else { return };
        match frame {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => line.sent(data.len()),
                None => {
                    if let Some(trailers) = frame.trailers_ref() {
                        line.fields(trailers);
                    }
                    line.complete();
                }
            },
            Some(Err(_)) => line.ends_early("broken_off"),
            None => line.complete(),
        }
        self.note_end();
    }
}

impl<B> Body for LoggedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Ok(polled) = catch(|| Pin::new(&mut self.body).poll_frame(cx)) else {
            Metrics::panicked();
            self.body = Either::Right(Full::default());
            if let Some(line) = &mut self.line {
                line.ends_early("panicked");
            }
            return Poll::Ready(Some(Err("panicked".into())));
        };
        let frame = ready!(polled);
        self.note(frame.as_ref());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
