//! A request on its way to an upstream: its head, then its body, as far as the upstream and the client let it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Request, header};
use http_body::Body;

use super::body::{BoxError, RequestBody, TooLong};
use super::connection::Connection;
use crate::http1::{self, Framing};

/// How far it has come.
#[derive(Debug)]
pub(crate) struct Upload {
    /// What is left of the body.
    framing: Framing,
    /// Some of it has been taken from the client.
    taken: bool,
    /// All of it has.
    complete: bool,
}

/// Why it does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// The upstream takes no more.
    Upstream,
    /// The client's body is none.
    Client,
    /// It is longer than it may be.
    TooLong,
    /// The client sends it too slowly.
    Stalled,
}

impl Upload {
    /// Begins: puts the head where it is written from.
    pub(super) fn begin(connection: &mut Connection, request: &Request<RequestBody>) -> Result<Self, UploadError> {
        let framing = if request.body().is_end_stream() { Framing::Length(0) } else { framing(request.headers())? };
        connection.has_written = false;
        http1::write_request(connection.outgoing.bytes(), request);
        Ok(Self { framing, taken: false, complete: framing == Framing::Length(0) })
    }

    pub(super) fn has_taken(&self) -> bool {
        self.taken
    }

    /// Moves on; ready when all is written.
    pub(super) fn poll(
        &mut self,
        connection: &mut Connection,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        loop {
            let starved = self.poll_fill(connection, body, cx)?.is_pending();
            // What has come is written whether or not there will be more.
            ready!(connection.poll_write(cx)).map_err(|_| UploadError::Upstream)?;
            if self.complete {
                return Poll::Ready(Ok(()));
            }
            if starved {
                return Poll::Pending;
            }
        }
    }

    /// Puts as much of the body as there is room for where it is written from; pending if the client has sent no more.
    fn poll_fill(
        &mut self,
        connection: &mut Connection,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        let outgoing = &mut connection.outgoing;
        while !self.complete && outgoing.can_push() {
            let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(frame) => frame.map_err(|error| UploadError::of(&error))?.into_data(),
                None => Err(http_body::Frame::trailers(HeaderMap::new())),
            };
            self.taken = true;
            match (&mut self.framing, frame) {
                (Framing::Length(left), Ok(data)) => {
                    *left = left.checked_sub(data.len() as u64).ok_or(UploadError::Client)?;
                    self.complete = *left == 0;
                    outgoing.push(data);
                }
                // It may not be as long as it said; trailers have no place.
                (Framing::Length(left), Err(_)) => {
                    self.complete = *left == 0;
                    if !self.complete {
                        return Poll::Ready(Err(UploadError::Client));
                    }
                }
                (_, Ok(data)) => outgoing.push_chunk(data),
                (_, Err(end)) => {
                    self.complete = true;
                    outgoing.push_end(&end.into_trailers().unwrap_or_default());
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl UploadError {
    pub(super) fn of(error: &BoxError) -> Self {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        match kind {
            Some(io::ErrorKind::TimedOut) => Self::Stalled,
            _ if error.is::<TooLong>() => Self::TooLong,
            _ => Self::Client,
        }
    }
}

/// That of a body which there is, as its head has been made to say.
fn framing(headers: &HeaderMap) -> Result<Framing, UploadError> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(Framing::Chunked);
    }
    let length = http1::length(headers).ok().flatten();
    length.map(Framing::Length).ok_or(UploadError::Client)
}
