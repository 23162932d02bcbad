//! Writes an HTTP/1 response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use super::Exchange;
use super::request_reader::RequestReader;
use crate::http::http1::{Framing, ResponseContext, WriteBuffer, write_response};
use crate::transport::{BodyData, poll_body_data};

/// The unwritten rest of a response.
pub(super) struct ResponseWriter<B> {
    body: ResponseSource<B>,
    framing: Framing,
    /// The bytes of the body that are still missing, if its length is known.
    remaining: u64,
    is_complete: bool,
    /// The client may have received bytes of the response.
    has_begun: bool,
    /// The upstream's direction of an upgraded connection.
    upstream_half: Option<UpstreamHalf>,
}

/// The state of the upstream's direction of an upgraded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpstreamHalf {
    Open,
    /// The upstream has closed it, and the client must be notified.
    Closed,
    Forwarded,
}

/// The body of a response: from the service, or of an error response.
pub(super) enum ResponseSource<B> {
    Service(B),
    Local(Full<Bytes>),
}

impl<B: Body<Data: Into<BodyData>> + Unpin> ResponseWriter<B> {
    /// Writes the head to the buffer. Returns the maps of its fields and extensions, to be reused.
    pub(super) fn write_head(
        exchange: &Exchange,
        response: Response<ResponseSource<B>>,
        outgoing: &mut WriteBuffer,
        is_relayable: bool,
    ) -> (Self, HeaderMap, Extensions) {
        let context = ResponseContext {
            version: exchange.version,
            head_only: exchange.head_only,
            length: response.body().exact_length(),
            keeps_open: exchange.keeps_open,
        };
        let framing = write_response(outgoing.bytes(), &response, context);
        let has_relay = is_relayable && matches!(framing, Framing::Length(1..));
        outgoing.set_relay(if has_relay { response.extensions().get().cloned() } else { None });
        let upstream_half = (response.status() == StatusCode::SWITCHING_PROTOCOLS).then_some(UpstreamHalf::Open);
        let (mut head, body) = response.into_parts();
        head.headers.clear();
        head.extensions.clear();
        let remaining = if let Framing::Length(length) = framing { length } else { 0 };
        let is_complete = framing == Framing::Length(0);
        let writer = Self { body, framing, remaining, is_complete, has_begun: false, upstream_half };
        (writer, head.headers, head.extensions)
    }

    /// Returns `true` if the client can tell the end of the response while the connection stays open.
    pub(super) fn is_delimited(&self) -> bool {
        self.framing != Framing::UntilClose
    }

    /// Returns `true` if the client has received no byte of the response, which is of the service.
    pub(super) fn can_be_replaced(&self) -> bool {
        !self.has_begun && !self.is_upgraded() && matches!(self.body, ResponseSource::Service(_))
    }

    /// Returns `true` if the response upgrades the connection.
    pub(super) fn is_upgraded(&self) -> bool {
        self.upstream_half.is_some()
    }

    /// Writes more of the response. Returns `Ready` when all is written. The body may depend on bytes from the same
    /// connection.
    ///
    /// # Errors
    /// The body failed or has the wrong length, or the client has closed the connection.
    pub(super) fn poll(
        &mut self,
        with_trailers: bool,
        outgoing: &mut WriteBuffer,
        reader: &Mutex<RequestReader>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let needs_body = self.poll_fill(with_trailers, outgoing, cx)?.is_pending();
            // Available bytes are written at once, even if the body has more.
            let mut reader = reader.lock();
            ready!(reader.poll_begin_response(cx))?;
            let waiting = outgoing.len();
            let written = outgoing.poll_write(&mut reader.stream, cx);
            self.has_begun |= outgoing.len() < waiting;
            ready!(written)?;
            if self.upstream_half == Some(UpstreamHalf::Closed) {
                ready!(Pin::new(&mut reader.stream).poll_shutdown(cx))?;
                self.upstream_half = Some(UpstreamHalf::Forwarded);
            }
            drop(reader);
            match (self.is_complete, needs_body) {
                (true, _) => {
                    outgoing.set_relay(None); // an idle connection keeps no pipe
                    return Poll::Ready(Ok(()));
                }
                (false, true) => return Poll::Pending,
                (false, false) => {}
            }
        }
    }

    /// Moves body data to the write buffer while there is room. Returns `Pending` if the body has no more data yet.
    fn poll_fill(
        &mut self,
        with_trailers: bool,
        outgoing: &mut WriteBuffer,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_complete && outgoing.can_push() {
            let frame = ready!(outgoing.poll_body(|| self.body.poll_frame(cx)))
                .transpose()
                .map_err(|()| io::Error::other("response body failed"))?;
            match (self.framing, frame.map(Frame::into_data)) {
                (Framing::Length(_), Some(Ok(data))) => {
                    self.remaining = self.remaining.checked_sub(data.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
                    self.is_complete = self.remaining == 0;
                    outgoing.push(data);
                }
                (Framing::Chunked, Some(Ok(data))) => outgoing.push_chunk(data.into_bytes()?),
                (Framing::UntilClose, Some(Ok(data))) => outgoing.push(data),
                (Framing::Length(_), None | Some(Err(_))) => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                (Framing::Chunked, end) => {
                    self.is_complete = true;
                    let trailers = end.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                    outgoing.push_end(&trailers.filter(|_| with_trailers).unwrap_or_default());
                }
                // On an upgraded connection, trailers mark the end of the upstream's direction. The client may
                // continue.
                (Framing::UntilClose, Some(Err(_))) if self.upstream_half.is_some() => {
                    self.upstream_half = Some(UpstreamHalf::Closed);
                }
                (Framing::UntilClose, None | Some(Err(_))) => self.is_complete = true,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<B: Body<Data: Into<BodyData>> + Unpin> ResponseSource<B> {
    fn exact_length(&self) -> Option<u64> {
        match self {
            Self::Service(body) if body.is_end_stream() => Some(0),
            Self::Service(body) => body.size_hint().exact(),
            Self::Local(body) => body.size_hint().exact(),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, ()>>> {
        match self {
            Self::Service(body) => poll_body_data(body, cx).map_err(|_| ()),
            Self::Local(body) => poll_body_data(body, cx).map_err(|never| match never {}),
        }
    }
}
