//! The body of an answer: streamed to the client, never gathered.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::time::Instant;

use super::body::{BoxError, RequestBody};
use super::download::Download;
use super::http2;
use super::tunnel::Tunnel;
use crate::sanitize::{self, trailers};
use crate::timer::Timer;

/// The body of an answer: an upstream's, or a few bytes of our own. Dropped before its end, it closes the connection it
/// comes from.
#[derive(Debug)]
pub struct ResponseBody(Source);

#[derive(Debug)]
enum Source {
    Remote(Box<Download>),
    Http2(Box<http2::Download>),
    Echo(Box<RequestBody>),
    Switched(Box<Tunnel>),
    Page(Full<Bytes>),
    Timed(Box<Timed>),
}

/// A body that has to be over at a moment.
#[derive(Debug)]
struct Timed {
    body: ResponseBody,
    end: Instant,
    timer: Timer,
    /// What ends it then; without, it breaks off.
    trailers: Option<HeaderMap>,
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

    /// The body of an upstream's answer in HTTP/2.
    pub(super) fn http2(download: http2::Download) -> Self {
        match download.is_end() {
            true => Self(Source::Page(Full::default())),
            false => Self(Source::Http2(Box::new(download))),
        }
    }

    /// What an upstream says in another protocol.
    pub(super) fn switched(tunnel: Tunnel) -> Self {
        Self(Source::Switched(Box::new(tunnel)))
    }

    /// The client's own body.
    pub(crate) fn echo(body: RequestBody) -> Self {
        Self(Source::Echo(Box::new(body)))
    }

    /// If it is not over at this moment, ends it by these trailers; without any, breaks it off.
    pub(crate) fn end_at(&mut self, end: Instant, trailers: Option<HeaderMap>) {
        let body = std::mem::replace(self, Self::from(Full::default()));
        self.0 = Source::Timed(Box::new(Timed { body, end, timer: Timer::new(), trailers }));
    }
}

// === impl Timed ===

impl Timed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.body.is_end_stream() || self.timer.poll(self.end, cx).is_pending() {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        self.body = Full::default().into(); // nothing more is read of it
        let trailers = self.trailers.take().map(Frame::trailers);
        Poll::Ready(Some(trailers.ok_or_else(|| "the deadline has passed".into())))
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
            Source::Http2(download) => {
                let polled = ready!(download.poll_frame(cx));
                Poll::Ready(polled.map(|frame| frame.map(clean).map_err(Into::into)))
            }
            Source::Echo(body) => Pin::new(body).poll_frame(cx),
            Source::Switched(tunnel) => tunnel.poll_frame(cx),
            Source::Page(page) => Pin::new(page).poll_frame(cx).map_err(|never| match never {}),
            Source::Timed(timed) => timed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Remote(download) => download.is_end(),
            Source::Http2(download) => download.is_end(),
            Source::Echo(body) => body.is_end_stream(),
            Source::Switched(tunnel) => tunnel.is_end(),
            Source::Page(page) => page.is_end_stream(),
            Source::Timed(timed) => timed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Remote(download) => download.size_hint(),
            Source::Http2(download) => download.size_hint(),
            Source::Echo(body) => body.size_hint(),
            Source::Switched(_) => SizeHint::default(),
            Source::Page(page) => page.size_hint(),
            Source::Timed(timed) => timed.body.size_hint(),
        }
    }
}

/// Removes from an answer's trailers what has no place there.
fn clean(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        sanitize::remove(trailers, trailers::is_forbidden);
    }
    frame
}
