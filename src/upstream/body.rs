//! Bodies on their way to and from an upstream: streamed, never gathered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};

use super::download::Download;
use super::transfer::Transfer;
use crate::sift::{self, Sieve, trailers};

/// Why a body ends before its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client's body.
pub struct RequestBody {
    /// Nothing, where there is none.
    stream: Option<Stream>,
    transfer: Option<Arc<Transfer>>,
    /// How much more of it may come.
    most: u64,
    /// What its trailers are held against.
    sieve: Option<Arc<Sieve>>,
}

/// A body is longer than it may be (RFC 9110 section 15.5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is too long")]
pub struct TooLong;

type Stream = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// The body of an answer: an upstream's, or a few bytes of our own. Dropped before its end, it closes the connection it
/// comes from.
#[derive(Debug)]
pub struct ResponseBody(Source);

#[derive(Debug)]
enum Source {
    Remote(Box<Download>),
    Echo(RequestBody),
    Page(Full<Bytes>),
}

// === impl RequestBody ===

impl RequestBody {
    /// A body as it comes from the client.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self { stream: Some(Box::pin(body.map_err(Into::into))), transfer: None, most: u64::MAX, sieve: None }
    }

    /// No body.
    pub fn none() -> Self {
        Self { stream: None, transfer: None, most: u64::MAX, sieve: None }
    }

    /// Takes the body, and leaves none.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::none())
    }

    /// Lets no more than so many bytes of data come.
    ///
    /// # Errors
    /// It is known to be longer.
    pub fn limit(&mut self, most: u64) -> Result<(), TooLong> {
        self.most = most;
        if self.size_hint().lower() > most { Err(TooLong) } else { Ok(()) }
    }

    /// Lets only such trailers come as the sieve lets pass.
    pub(crate) fn sift(&mut self, sieve: Option<Arc<Sieve>>) {
        self.sieve = sieve;
    }

    /// Tells `transfer` how it gets on.
    pub(crate) fn watch(&mut self, transfer: Arc<Transfer>) {
        self.transfer = Some(transfer);
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
        match (frame.trailers_mut(), &self.sieve) {
            (Some(trailers), Some(sieve)) => sieve.sift_trailers(trailers)?,
            (Some(trailers), None) => sift::remove(trailers, trailers::is_forbidden),
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

// === impl ResponseBody ===

impl ResponseBody {
    /// The body of an upstream's answer.
    pub(super) fn new(mut download: Download) -> Self {
        match download.whole() {
            Some(body) => Self(Source::Page(Full::new(body))),
            None => Self(Source::Remote(Box::new(download))),
        }
    }

    /// The client's own body.
    pub(crate) fn echo(body: RequestBody) -> Self {
        Self(Source::Echo(body))
    }
}

/// A body that is here already.
impl From<Full<Bytes>> for ResponseBody {
    fn from(page: Full<Bytes>) -> Self {
        Self(Source::Page(page))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Source::Remote(download) => {
                let polled = ready!(download.poll_frame(cx));
                Poll::Ready(polled.map(|frame| frame.map(clean).map_err(Into::into)))
            }
            Source::Echo(body) => Pin::new(body).poll_frame(cx),
            Source::Page(page) => Pin::new(page).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Remote(download) => download.is_end(),
            Source::Echo(body) => body.is_end_stream(),
            Source::Page(page) => page.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Remote(download) => download.size_hint(),
            Source::Echo(body) => body.size_hint(),
            Source::Page(page) => page.size_hint(),
        }
    }
}

/// Removes from an answer's trailers what has no place there.
fn clean(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        sift::remove(trailers, trailers::is_forbidden);
    }
    frame
}
