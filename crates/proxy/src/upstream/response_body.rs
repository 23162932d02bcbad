//! The body of a response, streamed to the client without buffering.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;

use super::body::{BoxError, RequestBody};
use super::download::Download;
use super::http2;
use super::tunnel::Tunnel;
use crate::transport::{BodyData, Relay, poll_body_data};
use tidegate_limit::clock::timer::Timer;
use tidegate_rules::request::sanitize::{self, trailers};

/// The body of a response, from an upstream or from the gateway itself. If it is dropped before its end, it closes the
/// upstream connection or resets the stream.
#[derive(Debug)]
pub struct ResponseBody(Source);

#[derive(Debug)]
enum Source {
    Http1(Box<Download>),
    Http2(Box<http2::Download>),
    Echo(Box<RequestBody>),
    Tunnel(Box<Tunnel>),
    Full(Full<Bytes>),
    Timed(Box<Timed>),
    Wrapped(UnsyncBoxBody<BodyData, BoxError>),
}

/// A body that has to end by a deadline.
#[derive(Debug)]
struct Timed {
    body: ResponseBody,
    deadline: Instant,
    timer: Timer,
    /// The trailers that end the body at the deadline. `None` breaks it off.
    trailers: Option<HeaderMap>,
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Creates the body of an HTTP/1.1 response.
    pub(super) fn new(mut download: Download) -> Self {
        match download.take_buffered_body() {
            Some(body) => Self(Source::Full(Full::new(body))),
            None => Self(Source::Http1(Box::new(download))),
        }
    }

    /// Creates the body of an HTTP/2 response.
    pub(super) fn http2(download: http2::Download) -> Self {
        match download.is_end() {
            true => Self(Source::Full(Full::default())),
            false => Self(Source::Http2(Box::new(download))),
        }
    }

    /// Creates the body that carries an upgraded connection.
    pub(super) fn tunnel(tunnel: Tunnel) -> Self {
        Self(Source::Tunnel(Box::new(tunnel)))
    }

    /// Creates a body that echoes the client's body.
    pub(crate) fn echo(body: RequestBody) -> Self {
        Self(Source::Echo(Box::new(body)))
    }

    /// Returns the relay that can move the body from its upstream connection to the client's.
    pub(super) fn relay(&self) -> Option<&Relay> {
        match &self.0 {
            Source::Http1(download) => download.relay(),
            _ => None,
        }
    }

    /// Replaces the body by another one, which reads it.
    pub(crate) fn wrap<B>(&mut self, wrap: impl FnOnce(Self) -> B)
    where
        B: Body<Data = BodyData, Error = BoxError> + Send + 'static,
    {
        let body = std::mem::replace(self, Self::from(Full::default()));
        self.0 = Source::Wrapped(UnsyncBoxBody::new(wrap(body)));
    }

    /// Sets a deadline. At the deadline, the body ends with these trailers; without trailers, it breaks off.
    pub(crate) fn end_at(&mut self, deadline: Instant, trailers: Option<HeaderMap>) {
        let body = std::mem::replace(self, Self::from(Full::default()));
        self.0 = Source::Timed(Box::new(Timed { body, deadline, timer: Timer::new(), trailers }));
    }
}

// === impl Timed ===

impl Timed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        if self.body.is_end_stream() || self.timer.poll(self.deadline, cx).is_pending() {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        self.body = Full::default().into(); // drops the rest, which closes the connection
        let trailers = self.trailers.take().map(Frame::trailers);
        Poll::Ready(Some(trailers.ok_or_else(|| "the deadline has passed".into())))
    }
}

/// Creates a body whose bytes are in memory.
impl From<Full<Bytes>> for ResponseBody {
    fn from(full: Full<Bytes>) -> Self {
        Self(Source::Full(full))
    }
}

impl Body for ResponseBody {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        match &mut self.0 {
            Source::Http1(download) => {
                let polled = ready!(download.poll_frame(cx));
                Poll::Ready(polled.map(|frame| frame.map(remove_forbidden_trailers).map_err(Into::into)))
            }
            Source::Http2(download) => {
                let polled = ready!(download.poll_frame(cx));
                Poll::Ready(polled.map(|frame| frame.map(remove_forbidden_trailers).map_err(Into::into)))
            }
            Source::Echo(body) => Pin::new(body).poll_frame(cx),
            Source::Tunnel(tunnel) => tunnel.poll_frame(cx),
            Source::Full(full) => poll_body_data(full, cx).map_err(|never| match never {}),
            Source::Timed(timed) => timed.poll_frame(cx),
            Source::Wrapped(body) => Pin::new(body).poll_frame(cx),
        }
    }

    #[inline] // called for each frame by the bodies around it, in other crates
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(download) => download.is_end(),
            Source::Http2(download) => download.is_end(),
            Source::Echo(body) => body.is_end_stream(),
            Source::Tunnel(tunnel) => tunnel.is_end(),
            Source::Full(full) => full.is_end_stream(),
            Source::Timed(timed) => timed.body.is_end_stream(),
            Source::Wrapped(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(download) => download.size_hint(),
            Source::Http2(download) => download.size_hint(),
            Source::Echo(body) => body.size_hint(),
            Source::Tunnel(_) => SizeHint::default(),
            Source::Full(full) => full.size_hint(),
            Source::Timed(timed) => timed.body.size_hint(),
            Source::Wrapped(body) => body.size_hint(),
        }
    }
}

/// Removes the fields that are not allowed in trailers.
fn remove_forbidden_trailers<D: Into<BodyData>>(mut frame: Frame<D>) -> Frame<BodyData> {
    if let Some(trailers) = frame.trailers_mut() {
        sanitize::remove(trailers, trailers::is_forbidden);
    }
    frame.map_data(Into::into)
}
