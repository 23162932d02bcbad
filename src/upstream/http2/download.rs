//! The body of an answer, on its way to the client.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::super::slots::UpstreamSlot;
use super::super::target_error::timed_out;
use super::super::upload_progress::UploadProgress;
use super::Shared;
use super::connection::StreamSlot;
use super::upload::UploadTask;
use crate::metrics::BrokenOff;
use crate::timer::Timer;

/// An answer of which the head has been read. On drop, its stream is reset unless it has ended.
#[derive(Debug)]
pub(crate) struct Download {
    /// `None` once all is read.
    coming: Option<OpenStream>,
    /// What is left, where the length was told.
    left: Option<u64>,
    timer: Timer,
    /// Since when the upstream has been waited for.
    silent_since: Option<Instant>,
    shared: Arc<Shared>,
}

/// A stream, and what is free when it has ended, in this order.
#[derive(Debug)]
struct OpenStream {
    stream: RecvStream,
    has_data: bool,
    /// What is still being sent of the request.
    rest: Option<(UploadTask, Arc<UploadProgress>)>,
    place: StreamSlot,
    _seat: UpstreamSlot,
}

impl Download {
    pub(super) fn new(
        stream: RecvStream,
        (place, seat): (StreamSlot, UpstreamSlot),
        left: Option<u64>,
        rest: Option<(UploadTask, Arc<UploadProgress>)>,
        shared: &Arc<Shared>,
    ) -> Self {
        let mut coming = OpenStream { stream, has_data: true, rest, place, _seat: seat };
        let has_ended = coming.stream.is_end_stream();
        if has_ended {
            coming.place.malformed().remove(coming.stream.stream_id());
            coming.end();
        }
        let (timer, shared) = (Timer::new(), Arc::clone(shared));
        Self { coming: Some(coming).filter(|_| !has_ended), left, timer, silent_since: None, shared }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(coming) = &mut self.coming else { return Poll::Ready(None) };
        let polled = match coming.poll_frame(cx) {
            Poll::Ready(polled) => polled.map_err(|error| {
                coming.place.ended();
                (cause(&error), error.to_string())
            }),
            Poll::Pending => {
                let why = ready!(self.poll_silent(cx));
                Err((why, timed_out(self.shared.body_timeout).to_string()))
            }
        };
        self.silent_since = None;
        match polled {
            Ok(frame) => {
                self.note(frame.as_ref());
                Poll::Ready(frame.map(Ok))
            }
            Err((why, error)) => {
                self.break_off(why, &error);
                Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
            }
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.coming.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// What came, came; at the end the stream is over.
    fn note(&mut self, frame: Option<&Frame<Bytes>>) {
        let Some(coming) = &mut self.coming else { return };
        coming.place.heard();
        let data = frame.and_then(Frame::data_ref);
        let length = data.map_or(0, |data| data.len() as u64);
        self.left = self.left.map(|left| left.saturating_sub(length));
        if data.is_none() || coming.stream.is_end_stream() {
            coming.end();
            self.coming = None;
        }
    }

    /// Ready if the upstream has been silent for too long, while the reader of the answer waited for it all that time. It is
    /// not silent while it takes the request.
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<BrokenOff> {
        let mut since = *self.silent_since.get_or_insert_with(Instant::now);
        if let Some((_, transfer)) = self.coming.as_ref().and_then(|coming| coming.rest.as_ref()) {
            since = since.max(transfer.last_moved());
        }
        self.timer.poll(since + self.shared.body_timeout, cx).map(|()| BrokenOff::Silent)
    }

    /// Resets the stream; the rest of the answer is lost.
    fn break_off(&mut self, why: BrokenOff, error: &String) {
        self.coming = None;
        self.shared.metrics.broken_off(why);
        self.shared.target.broke_off(error);
    }
}

impl OpenStream {
    /// The answer is over. A request of which the rest is wanted no more is reset.
    fn end(&mut self) {
        if self.rest.as_ref().is_none_or(|(rest, _)| rest.is_over()) {
            self.place.ended();
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, h2::Error>> {
        while self.has_data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) if data.is_empty() && !self.stream.is_end_stream() => {}
                Some(Ok(data)) => {
                    // It fails for a stream that is gone, which the next look at it tells.
                    _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Ok(Some(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => self.has_data = false,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        let (malformed, stream) = (self.place.malformed(), self.stream.stream_id());
        if trailers.is_some() && malformed.contains(stream) {
            malformed.remove(stream);
            return Poll::Ready(Err(Reason::PROTOCOL_ERROR.into()));
        }
        Poll::Ready(Ok(trailers.map(Frame::trailers)))
    }
}

fn cause(error: &h2::Error) -> BrokenOff {
    if error.is_remote() || error.is_io() { BrokenOff::Closed } else { BrokenOff::Malformed }
}
