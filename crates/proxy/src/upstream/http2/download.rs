//! Reads the body of an HTTP/2 response.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::super::slots::UpstreamSlot;
use super::super::target_error::timed_out;
use super::super::upload_progress::UploadProgress;
use super::Shared;
use super::connection::StreamSlot;
use super::upload::UploadTask;
use crate::http::http2::has_outer_whitespace;
use tidegate_limit::clock::timer::Timer;
use tidegate_metrics::BrokenResponse;

/// The body of a response whose head was read. On drop, resets the stream unless it has ended.
#[derive(Debug)]
pub(crate) struct Download {
    /// `None` after the end of the body or a failure.
    stream: Option<OpenStream>,
    /// The bytes that are left, if the length is known.
    remaining: Option<u64>,
    timer: Timer,
    /// Since when the gateway waits for the upstream.
    silent_since: Option<Instant>,
    shared: Arc<Shared>,
}

/// A stream that has not ended, and what it occupies. The fields are dropped in this order.
#[derive(Debug)]
struct OpenStream {
    stream: RecvStream,
    has_data: bool,
    /// The rest of the request.
    upload: Option<(UploadTask, Arc<UploadProgress>)>,
    stream_slot: StreamSlot,
    _slot: UpstreamSlot,
}

impl Download {
    pub(super) fn new(
        stream: RecvStream,
        (stream_slot, slot): (StreamSlot, UpstreamSlot),
        length: Option<u64>,
        upload: Option<(UploadTask, Arc<UploadProgress>)>,
        shared: &Arc<Shared>,
    ) -> Self {
        let mut open = OpenStream { stream, has_data: true, upload, stream_slot, _slot: slot };
        let has_ended = open.stream.is_end_stream();
        if has_ended {
            open.end();
        }
        let (timer, shared) = (Timer::new(), Arc::clone(shared));
        Self { stream: Some(open).filter(|_| !has_ended), remaining: length, timer, silent_since: None, shared }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(open) = &mut self.stream else { return Poll::Ready(None) };
        let polled = match open.poll_frame(cx) {
            Poll::Ready(polled) => polled.map_err(|error| {
                open.stream_slot.stream_failed(&error);
                (cause(&error), error.to_string())
            }),
            Poll::Pending => {
                let cause = ready!(self.poll_silence(cx));
                Err((cause, timed_out(self.shared.idle_timeout).to_string()))
            }
        };
        self.silent_since = None;
        match polled {
            Ok(frame) => {
                self.record_frame(frame.as_ref());
                Poll::Ready(frame.map(Ok))
            }
            Err((cause, error)) => {
                self.fail(cause, &error);
                Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
            }
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.stream.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Records a frame, and the end of the stream.
    fn record_frame(&mut self, frame: Option<&Frame<Bytes>>) {
        let Some(open) = &mut self.stream else { return };
        open.stream_slot.record_received();
        let data = frame.and_then(Frame::data_ref);
        let length = data.map_or(0, |data| data.len() as u64);
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(length));
        if data.is_none() || open.stream.is_end_stream() {
            open.end();
            self.stream = None;
        }
    }

    /// Returns `Ready` if the upstream has been silent for `timeouts.idle`, while the reader of the response waited all
    /// that time. An upstream that reads the request is not silent.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<BrokenResponse> {
        let mut since = *self.silent_since.get_or_insert_with(Instant::now);
        if let Some((_, progress)) = self.stream.as_ref().and_then(|open| open.upload.as_ref()) {
            since = since.max(progress.last_progress());
        }
        self.timer.poll(since + self.shared.idle_timeout, cx).map(|()| BrokenResponse::Silent)
    }

    /// Resets the stream and records the error.
    fn fail(&mut self, cause: BrokenResponse, error: &String) {
        self.stream = None;
        self.shared.metrics.broken_response(cause);
        self.shared.target.record_broken_body(error);
    }
}

impl OpenStream {
    /// Records the end of the response. If the request is still being sent, the stream has not ended, and is reset on
    /// drop.
    fn end(&mut self) {
        if self.upload.as_ref().is_none_or(|(task, _)| task.is_finished()) {
            self.stream_slot.stream_ended();
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, h2::Error>> {
        while self.has_data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) if data.is_empty() && !self.stream.is_end_stream() => {}
                Some(Ok(data)) => {
                    // Fails if the stream was reset, which the next poll reports.
                    _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Ok(Some(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => self.has_data = false,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        let is_malformed = |trailers: &HeaderMap| trailers.values().any(has_outer_whitespace);
        if trailers.as_ref().is_some_and(is_malformed) {
            return Poll::Ready(Err(Reason::PROTOCOL_ERROR.into()));
        }
        Poll::Ready(Ok(trailers.map(Frame::trailers)))
    }
}

fn cause(error: &h2::Error) -> BrokenResponse {
    if error.is_remote() || error.is_io() { BrokenResponse::Closed } else { BrokenResponse::Malformed }
}
