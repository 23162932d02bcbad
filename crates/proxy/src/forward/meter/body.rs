//! A response body whose usage is read while it is streamed.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::transport::BodyData;
use crate::upstream::{BoxError, ResponseBody};
use tidegate_layer::metering::{Metering, ResponseReader};
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
    /// The trailers that follow the last data.
    trailers: Option<HeaderMap>,
    has_ended: bool,
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

    /// Settles the reservations after the whole response.
    pub(super) fn finish(mut self) {
        let usage = self.reader.as_mut().and_then(|reader| {
            reader.end();
            reader.usage()
        });
        self.metering.settle(usage.or(self.is_free.then(Usage::default)).as_ref());
    }
}

impl MeteredBody {
    pub(super) fn new(body: ResponseBody, meter: Meter, removes_usage: bool) -> Self {
        let filter = removes_usage.then(UsageEventFilter::default);
        Self { body, meter: Some(meter), filter, trailers: None, has_ended: false }
    }

    /// Returns the data to forward.
    fn filtered(&mut self, data: Bytes) -> Bytes {
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

    /// Returns the next data, or `None` after the last one.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BoxError>> {
        while !self.has_ended {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else { return Poll::Pending };
            let data = match frame.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => {
                    let data = data.into_bytes()?;
                    if let Some(meter) = &mut self.meter {
                        meter.read(&data);
                    }
                    self.filtered(data)
                }
                Some(Err(frame)) => {
                    self.trailers = frame.into_trailers().ok();
                    self.finish()
                }
                None => self.finish(),
            };
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
        if self.filter.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// The client has left before the end of the response.
impl Drop for MeteredBody {
    fn drop(&mut self) {
        let Some(meter) = self.meter.take() else { return };
        match (meter.metering.on_disconnect(), Handle::try_current()) {
            (OnDisconnect::Drain, Ok(runtime)) if meter.needs_rest() => {
                let body = std::mem::replace(&mut self.body, Full::default().into());
                runtime.spawn(drain(body, meter));
            }
            _ => meter.break_off(),
        }
    }
}

/// Reads the rest of a response, up to a bound.
async fn drain(body: ResponseBody, mut meter: Meter) {
    let read = async {
        let (mut body, mut left) = (pin!(body), MAX_DRAINED);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { break };
            let data = data.into_bytes()?;
            left = left.checked_sub(data.len()).ok_or("the response is too long")?;
            meter.read(&data);
        }
        Ok::<(), BoxError>(())
    };
    match timeout(DRAIN_TIMEOUT, read).await {
        Ok(Ok(())) => meter.finish(),
        Ok(Err(_)) | Err(_) => meter.break_off(),
    }
}
