//! Reads a body from a connection and tracks the part that is still to be read.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::SizeHint;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;

use super::chunked::{Chunked, Piece};
use super::{Framing, Malformed};
use crate::transport::{BodyData, Relay, Transport};

/// The size of one read of a head, which can include the start of the body. The bytes stay in memory while a client
/// does not read the response: 100 such HTTP/2 streams must use less than 1 MiB.
const HEAD_READ: usize = 3 * 1024;
/// The largest size of one read of a body with a known length, and the size for an unknown length.
const BODY_READ: usize = 64 * 1024;
const UNKNOWN_READ: u64 = 16 * 1024;

/// The part of a body that has not been read.
#[derive(Debug)]
pub(crate) enum RemainingBody {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// A connection that can be polled for readiness.
pub(crate) trait Readable: AsyncRead + Unpin {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl RemainingBody {
    /// Creates the state before the first byte of the body.
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::new()),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Takes the next piece from `unread`.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub(crate) fn take(&mut self, unread: &mut Bytes) -> Result<Piece, Malformed> {
        match self {
            Self::Length(0) => Ok(Piece::End(None)),
            Self::Chunked(chunked) => chunked.read(unread),
            _ if unread.is_empty() => Ok(Piece::NeedInput),
            Self::Length(left) => {
                let data = unread.split_to(usize::try_from(*left).unwrap_or(usize::MAX).min(unread.len()));
                *left -= data.len() as u64;
                Ok(Piece::Data(data))
            }
            Self::UntilClose => Ok(Piece::Data(std::mem::take(unread))),
        }
    }

    /// Returns `true` if the whole body has been read.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_end(),
            Self::UntilClose => false,
        }
    }

    /// Returns the number of remaining bytes, if known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(*left),
            _ => SizeHint::default(),
        }
    }

    /// Moves more of the body into the pipe of the relay. Returns `None` if it must be read into memory.
    pub(crate) fn poll_relay(
        &mut self,
        relay: Option<&Relay>,
        stream: Option<&TcpStream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<BodyData>>> {
        let (Self::Length(left), Some(relay), Some(stream)) = (self, relay, stream) else {
            return Poll::Ready(Ok(None));
        };
        if !relay.can_fill(*left) {
            return Poll::Ready(Ok(None));
        }
        let count = ready!(relay.poll_fill(stream, *left, cx))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        *left -= count as u64;
        Poll::Ready(Ok(Some(BodyData::Piped(count))))
    }

    /// Reads more bytes into the empty `unread`. Returns `false` at the end of the connection.
    pub(crate) fn poll_more(
        &self,
        stream: &mut impl Readable,
        unread: &mut Bytes,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        // Wait for readiness before the allocation, so that an idle body needs no buffer.
        ready!(stream.poll_readable(cx))?;
        let max = if let Self::Length(left) = self { *left } else { UNKNOWN_READ };
        let mut bytes = BytesMut::with_capacity(usize::try_from(max).unwrap_or(BODY_READ).min(BODY_READ));
        let count = ready!(pin!(stream.read_buf(&mut bytes)).poll(cx))?;
        *unread = bytes.freeze();
        Poll::Ready(Ok(count > 0))
    }
}

/// Reads more bytes of a head and appends them to `unread`. Returns their number. Reads into the stack, so that idle
/// connections keep no large buffer.
pub(crate) fn poll_head_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    unread: &mut Bytes,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut buffer = [const { MaybeUninit::uninit() }; HEAD_READ];
    let mut read = ReadBuf::uninit(&mut buffer);
    ready!(Pin::new(stream).poll_read(cx, &mut read))?;
    let read = read.filled();
    *unread = if unread.is_empty() { Bytes::copy_from_slice(read) } else { [unread, read].concat().into() };
    Poll::Ready(Ok(read.len()))
}

impl Readable for Transport {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Transport::poll_readable(self, cx)
    }
}
