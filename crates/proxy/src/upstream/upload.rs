//! Sends a request over HTTP/1.1: its head, then its body, at the speed of the client and the upstream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Request, header};
use http_body::Body;

use super::UpstreamError;
use super::body::{BoxError, RequestBody, TooLong};
use super::connection::Connection;
use crate::http::http1::{self, Framing};

/// The state of a request that is being sent.
#[derive(Debug)]
pub(crate) struct Upload {
    /// The framing of the rest of the body.
    framing: Framing,
    /// Whether all of the body was read from the client.
    is_complete: bool,
}

/// The reason why a request could not be sent completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// The upstream does not take the rest.
    Upstream,
    /// The client's body cannot be read.
    Client(UpstreamError),
}

impl Upload {
    /// Starts to send a request: puts its head into the write buffer.
    pub(super) fn start(connection: &mut Connection, request: &Request<RequestBody>) -> Result<Self, UpstreamError> {
        let framing = if request.body().is_end_stream() { Framing::Length(0) } else { framing(request.headers())? };
        connection.has_written = false;
        let relay = request.body().relay().filter(|_| framing != Framing::Chunked && connection.is_relayable());
        connection.outgoing.set_relay(relay.inspect(|relay| relay.discard()).cloned());
        http1::write_request(connection.outgoing.bytes(), request);
        Ok(Self { framing, is_complete: framing == Framing::Length(0) })
    }

    /// Sends more. Returns `Ready` when all is written.
    pub(super) fn poll(
        &mut self,
        connection: &mut Connection,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        loop {
            let waits_for_client = self.poll_fill(connection, body, cx)?.is_pending();
            // Written even if the client has sent no more.
            ready!(connection.poll_write(cx)).map_err(|_| UploadError::Upstream)?;
            if self.is_complete {
                connection.outgoing.set_relay(None); // an idle connection keeps no pipe
                return Poll::Ready(Ok(()));
            }
            if waits_for_client {
                return Poll::Pending;
            }
        }
    }

    /// Moves the body into the write buffer until that is full. Returns `Pending` if the client has sent no more.
    fn poll_fill(
        &mut self,
        connection: &mut Connection,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        let outgoing = &mut connection.outgoing;
        while !self.is_complete && outgoing.can_push() {
            let frame = match ready!(outgoing.poll_body(|| Pin::new(&mut *body).poll_frame(cx))) {
                Some(frame) => frame.map_err(|error| UploadError::from_body_error(&error))?.into_data(),
                None => Err(http_body::Frame::trailers(HeaderMap::new())),
            };
            match (&mut self.framing, frame) {
                (Framing::Length(left), Ok(data)) => {
                    *left =
                        left.checked_sub(data.len() as u64).ok_or(UploadError::Client(UpstreamError::ClientBroken))?;
                    self.is_complete = *left == 0;
                    outgoing.push(data);
                }
                // The body may be shorter than announced. Trailers are dropped: they need chunked framing.
                (Framing::Length(left), Err(_)) => {
                    self.is_complete = *left == 0;
                    if !self.is_complete {
                        return Poll::Ready(Err(UploadError::Client(UpstreamError::ClientBroken)));
                    }
                }
                (_, Ok(data)) => {
                    let data = data.into_bytes().map_err(|_| UploadError::Client(UpstreamError::ClientBroken))?;
                    outgoing.push_chunk(data);
                }
                (_, Err(end)) => {
                    self.is_complete = true;
                    outgoing.push_end(&end.into_trailers().unwrap_or_default());
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl UploadError {
    pub(super) fn from_body_error(error: &BoxError) -> Self {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        Self::Client(match kind {
            Some(io::ErrorKind::TimedOut) => UpstreamError::ClientStalled,
            _ if error.is::<TooLong>() => UpstreamError::ClientTooLong,
            _ => UpstreamError::ClientBroken,
        })
    }
}

/// Returns the framing of a body that is not empty, from the rewritten head.
fn framing(headers: &HeaderMap) -> Result<Framing, UpstreamError> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(Framing::Chunked);
    }
    let length = http1::length(headers).ok().flatten();
    length.map(Framing::Length).ok_or(UpstreamError::ClientBroken)
}
