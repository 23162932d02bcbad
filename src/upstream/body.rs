//! The body of a request: streamed to its upstream, never gathered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::informational::InformationalSender;
use super::trace::Trace;
use super::upload_progress::UploadProgress;
use crate::sanitize::{self, FieldFilter, trailers};

/// Why a body ends before its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client's body.
pub struct RequestBody {
    /// Nothing, where there is none.
    stream: Option<Stream>,
    transfer: Option<Arc<UploadProgress>>,
    /// How much more of it may come.
    most: u64,
    /// What its trailers are held against.
    field_filter: Option<Arc<FieldFilter>>,
    /// Whom to tell what comes before the answer.
    informer: Option<InformationalSender>,
}

/// A body is longer than it may be (RFC 9110 section 15.5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is too long")]
pub struct TooLong;

type Stream = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

// === impl RequestBody ===

impl RequestBody {
    /// A body as it comes from the client.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self { stream: Some(Box::pin(body.map_err(Into::into))), ..Self::none() }
    }

    /// No body.
    pub fn none() -> Self {
        Self { stream: None, transfer: None, most: u64::MAX, field_filter: None, informer: None }
    }

    /// The same of a client that may be told what comes before its answer (1xx).
    pub(crate) fn with_informational_sender(self, informer: InformationalSender) -> Self {
        Self { informer: Some(informer), ..self }
    }

    /// Takes the way to the client; there is none to one of HTTP/1.0.
    pub(super) fn informer(&mut self) -> Option<&mut InformationalSender> {
        self.informer.as_mut()
    }

    /// Takes the body, and leaves none.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::none())
    }

    /// Puts another body in its place, which may be made of it.
    pub(crate) fn replace<B>(&mut self, with: impl FnOnce(Self) -> B)
    where
        B: Body<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        *self = Self::new(with(self.take()));
    }

    /// Lets no more than so many bytes of data come.
    ///
    /// # Errors
    /// It is known to be longer.
    pub fn limit(&mut self, most: u64) -> Result<(), TooLong> {
        self.most = most;
        if self.size_hint().lower() > most { Err(TooLong) } else { Ok(()) }
    }

    /// Lets any number of bytes come: what counts as a body is over.
    pub(super) fn unlimit(&mut self) {
        self.most = u64::MAX;
    }

    /// Lets only such trailers come as the field_filter lets pass.
    pub(crate) fn filter_trailers(&mut self, field_filter: Option<Arc<FieldFilter>>) {
        self.field_filter = field_filter;
    }

    /// Begins to watch it on its way; nothing if there is none. A body that `waits` is held back until the upstream asks
    /// for it.
    pub(crate) fn watch(&mut self, waits: bool) -> Option<Arc<UploadProgress>> {
        if self.is_end_stream() {
            return None;
        }
        self.transfer = Some(Arc::new(UploadProgress::new(waits)));
        self.transfer.clone()
    }

    /// Counts its bytes as they come.
    pub(crate) fn trace(&mut self, trace: &Trace) {
        if !self.is_end_stream()
            && let Some(stream) = self.stream.take()
        {
            let trace = trace.clone();
            let count = move |frame: &Frame<Bytes>| trace.read(frame.data_ref().map_or(0, Bytes::len));
            self.stream = Some(Box::pin(stream.inspect_frame(count)));
        }
    }

    fn note(&self, polled: &Poll<Option<Result<Frame<Bytes>, BoxError>>>) {
        let Some(transfer) = &self.transfer else { return };
        match polled {
            Poll::Pending => transfer.starved(),
            Poll::Ready(_) => transfer.moved(),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(transfer) = &self.transfer {
            ready!(transfer.poll_gate(cx));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let polled = stream.as_mut().poll_frame(cx);
        self.note(&polled);
        let Some(mut frame) = ready!(polled).transpose()? else { return Poll::Ready(None) };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        match self.most.checked_sub(length) {
            Some(rest) => self.most = rest,
            None => return Poll::Ready(Some(Err(TooLong.into()))),
        }
        match (frame.trailers_mut(), &self.field_filter) {
            (Some(trailers), Some(field_filter)) => field_filter.apply_to_trailers(trailers)?,
            (Some(trailers), None) => sanitize::remove(trailers, trailers::is_forbidden),
            (None, _) => {}
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.stream.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("has_ended", &self.is_end_stream()).finish_non_exhaustive()
    }
}
