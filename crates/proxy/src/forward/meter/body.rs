//! A response body whose usage is read while it is streamed.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::transport::BodyData;
use crate::upstream::{BoxError, ResponseBody};
use tidegate_layer::metering::{Advance, Metering, ResponseReader, TopUp};
use tidegate_rules::limits::budget::OnDisconnect;
use tidegate_usage::{Usage, UsageEventFilter};

/// How long the rest of a response is read after its client has left.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes that are read after the client has left.
const MAX_DRAINED: usize = 16 << 20;

/// A body that settles the reservations of its request at its end.
pub(super) struct MeteredBody {
    body: ResponseBody,
    /// `None` after the end of the body.
    meter: Option<Meter>,
    /// Removes an event.
    filter: Option<UsageEventFilter>,
    /// Reserves the output in slices, and removes the event instead of the filter.
    top_up: Option<Box<TopUp>>,
    /// The trailers that follow the last data.
    trailers: Option<HeaderMap>,
    /// The upstream has sent everything.
    is_complete: bool,
    has_ended: bool,
    /// The client has left, and the rest of the response is read for its usage.
    is_draining: bool,
}

/// Reads the usage of one response.
pub(super) struct Meter {
    /// `None` if the body cannot be read.
    pub(super) reader: Option<ResponseReader>,
    pub(super) metering: Arc<Metering>,
    /// The API charges nothing for a response without a usage.
    pub(super) is_free: bool,
}

impl Meter {
    fn read(&mut self, data: &Bytes) {
        if let Some(reader) = &mut self.reader {
            reader.push(data);
        }
    }

    /// Settles the reservations after a part of the response. If its usage is not known, all that is reserved is charged.
    fn break_off(self) {
        self.metering.settle(self.reader.and_then(|reader| reader.usage_of_part()).as_ref());
    }

    /// Returns `true` if the rest of the response has the usage.
    fn needs_rest(&self) -> bool {
        self.reader.as_ref().is_some_and(ResponseReader::reads_content)
    }

    /// Returns the usage of the whole response.
    fn usage(&mut self) -> Option<Usage> {
        let reader = self.reader.as_mut()?;
        reader.end();
        reader.usage()
    }

    /// Settles the reservations after the whole response.
    pub(super) fn finish(mut self) {
        let usage = self.usage();
        self.metering.settle(usage.or(self.is_free.then(Usage::default)).as_ref());
    }
}

impl MeteredBody {
    pub(super) fn new(body: ResponseBody, meter: Meter, removes_usage: bool) -> Self {
        let has_events = meter.reader.as_ref().is_some_and(ResponseReader::reads_events);
        let top_up = if meter.is_free { None } else { meter.metering.top_up(has_events) };
        let filter = (removes_usage && top_up.is_none()).then(UsageEventFilter::default);
        let (is_complete, has_ended, is_draining) = (false, false, false);
        Self { body, meter: Some(meter), filter, top_up, trailers: None, is_complete, has_ended, is_draining }
    }

    /// Returns the data to forward now.
    fn filtered(&mut self, data: Bytes) -> Bytes {
        if let Some(top_up) = &mut self.top_up {
            top_up.push(data);
            return Bytes::new();
        }
        let Some(filter) = &mut self.filter else { return data };
        let mut kept = Vec::with_capacity(data.len());
        filter.push(&data, &mut kept);
        kept.into()
    }

    /// Ends the body. Returns its last data.
    fn finish(&mut self) -> Bytes {
        self.has_ended = true;
        if let Some(meter) = self.meter.take() {
            meter.finish();
        }
        let mut rest = Vec::new();
        if let Some(filter) = &mut self.filter {
            filter.end(&mut rest);
        }
        rest.into()
    }

    /// Ends the data of the upstream. Returns the last data, unless it has to be reserved.
    fn complete(&mut self) -> Bytes {
        self.is_complete = true;
        let Some(top_up) = &mut self.top_up else { return self.finish() };
        top_up.finish(self.meter.as_mut().and_then(Meter::usage).as_ref());
        Bytes::new()
    }

    /// Ends the stream before the upstream does, and closes the connection to the upstream. Appends the end of the stream to `out`.
    fn end_early(&mut self, out: &mut Vec<u8>) {
        self.has_ended = true;
        self.body = Full::default().into();
        let input = self.meter.take().and_then(|meter| meter.reader?.input());
        if let Some(top_up) = &mut self.top_up {
            top_up.end(input, out);
        }
    }

    /// Passes data that is reserved. Returns `None` if the next data comes from the upstream.
    fn poll_reserved(&mut self, cx: &mut Context<'_>) -> Option<Poll<Result<Bytes, BoxError>>> {
        let mut out = Vec::new();
        match self.top_up.as_mut()?.advance(cx, &mut out) {
            Advance::Passed if out.is_empty() && self.is_complete => out = self.finish().into(),
            Advance::Passed if out.is_empty() => return None,
            Advance::Waits if out.is_empty() => return Some(Poll::Pending),
            Advance::Passed | Advance::Waits => {}
            Advance::Exhausted => self.end_early(&mut out),
            Advance::Broken => return Some(Poll::Ready(Err("the rest of the response is not reserved".into()))),
        }
        Some(Poll::Ready(Ok(out.into())))
    }

    /// Returns the next data of the upstream. It is empty if there may be more.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BoxError>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(Ok(match frame.transpose()?.map(Frame::into_data) {
            Some(Ok(data)) => {
                let data = data.into_bytes()?;
                if let Some(meter) = &mut self.meter {
                    meter.read(&data);
                }
                self.filtered(data)
            }
            Some(Err(frame)) => {
                self.trailers = frame.into_trailers().ok();
                self.complete()
            }
            None => self.complete(),
        }))
    }

    /// Returns the next data, or `None` after the last one.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BoxError>> {
        while !self.has_ended {
            let polled = self.poll_reserved(cx).unwrap_or_else(|| self.poll_upstream(cx));
            let data = ready!(polled)?;
            if !data.is_empty() {
                return Poll::Ready(Ok(Some(data)));
            }
        }
        Poll::Ready(Ok(None))
    }
}

impl Body for MeteredBody {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        self.poll_data(cx).map(|polled| match polled {
            Ok(Some(data)) => Some(Ok(Frame::data(data.into()))),
            Ok(None) => self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => {
                self.has_ended = true;
                self.meter.take().into_iter().for_each(Meter::break_off);
                Some(Err(error))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.filter.is_some() || self.top_up.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// The client has left before the end of the response.
impl Drop for MeteredBody {
    fn drop(&mut self) {
        let Some(meter) = self.meter.take() else { return };
        match (meter.metering.on_disconnect(), Handle::try_current()) {
            // Only once: a runtime that ends drops the new task at once, and this body with it.
            (OnDisconnect::Drain, Ok(runtime)) if meter.needs_rest() && !self.is_draining => {
                let body = std::mem::replace(&mut self.body, Full::default().into());
                let (top_up, is_complete) = (self.top_up.take(), self.is_complete);
                runtime.spawn(drain(Self {
                    body,
                    meter: Some(meter),
                    filter: None,
                    top_up,
                    trailers: None,
                    is_complete,
                    has_ended: false,
                    is_draining: true,
                }));
            }
            _ => meter.break_off(),
        }
    }
}

/// Reads the rest of a response, up to a bound.
async fn drain(mut body: MeteredBody) {
    let read = async {
        let mut left = MAX_DRAINED;
        while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await? {
            left = left.checked_sub(data.len()).ok_or("the response is too long")?;
        }
        Ok::<(), BoxError>(())
    };
    let is_read = matches!(timeout(DRAIN_TIMEOUT, read).await, Ok(Ok(())));
    if let Some(meter) = body.meter.take().filter(|_| !is_read) {
        meter.break_off();
    }
}
