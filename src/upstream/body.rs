//! Bodies on their way to and from an upstream: streamed, never gathered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::download::Download;
use super::transfer::Transfer;

/// Why a body ends before its end.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client's body.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    transfer: Option<Arc<Transfer>>,
    upload: Option<Arc<dyn Upload>>,
}

/// Whoever wants to know that a client has sent all of a body.
pub(crate) trait Upload: std::fmt::Debug + Send + Sync {
    /// It has.
    fn complete(&self);
}

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
    /// A body as it comes from the client; `upload` is told of its end, if there is more than that.
    pub(crate) fn new(incoming: Incoming, upload: Arc<dyn Upload>) -> Self {
        let upload = Some(upload).filter(|_| !incoming.is_end_stream());
        Self { incoming, transfer: None, upload }
    }

    /// Tells `transfer` how it gets on.
    pub(crate) fn watch(&mut self, transfer: Arc<Transfer>) {
        self.transfer = Some(transfer);
    }

    fn note(&self, polled: &Poll<Option<Result<Frame<Bytes>, hyper::Error>>>) {
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
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        self.note(&polled);
        if matches!(polled, Poll::Ready(None)) || self.incoming.is_end_stream() {
            self.upload.take().into_iter().for_each(|upload| upload.complete());
        }
        polled.map(|frame| frame.map(|frame| frame.map(clean).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
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

/// Removes trailer fields that nobody may decide on after the fact: framing, routing, authority (RFC 9110 section
/// 6.5.1).
fn clean(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        remove_forbidden(trailers);
    }
    frame
}

fn remove_forbidden(trailers: &mut HeaderMap) {
    for name in [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::EXPECT,
        header::FORWARDED,
        header::HOST,
        header::MAX_FORWARDS,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::VIA,
    ] {
        trailers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
        trailers.remove(name);
    }
}
