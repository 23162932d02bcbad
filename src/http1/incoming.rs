//! Reads a body from a connection, and knows what is left of it.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::SizeHint;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::chunked::{Chunked, Piece};
use super::{Framing, Malformed};
use crate::transport::Transport;

/// Bytes of one read of a head, with the beginning of its body. They stay in memory while a client does not read the response: 100
/// such HTTP/2 streams must take less than 1 MiB.
const HEAD_READ: usize = 3 * 1024;
/// Bytes of one read of a body: of known length (at most); of unknown length.
const BODY_READ: usize = 64 * 1024;
const UNKNOWN_READ: u64 = 16 * 1024;

/// The rest of a body.
#[derive(Debug)]
pub(crate) enum Left {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// A connection that can be polled for readiness.
pub(crate) trait Readable: AsyncRead + Unpin {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Left {
    /// A body of which nothing has been read.
    pub(crate) fn all_of(framing: Framing) -> Self {
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

    /// Has all been read?
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_end(),
            Self::UntilClose => false,
        }
    }

    /// How many bytes are left, if known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(*left),
            _ => SizeHint::default(),
        }
    }

    /// Reads more into the empty `unread`; false at the end of the connection.
    pub(crate) fn poll_more(
        &self,
        stream: &mut impl Readable,
        unread: &mut Bytes,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        // Waits for readiness first, so that a waiting body needs no buffer.
        ready!(stream.poll_readable(cx))?;
        let most = if let Self::Length(left) = self { *left } else { UNKNOWN_READ };
        let mut bytes = BytesMut::with_capacity(usize::try_from(most).unwrap_or(BODY_READ).min(BODY_READ));
        let count = ready!(pin!(stream.read_buf(&mut bytes)).poll(cx))?;
        *unread = bytes.freeze();
        Poll::Ready(Ok(count > 0))
    }
}

/// Reads more of a head and appends it; returns how many bytes came. Reads onto the stack, so that idle connections keep no
/// large buffer.
pub(crate) fn poll_head_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    unread: &mut Bytes,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut room = [const { MaybeUninit::uninit() }; HEAD_READ];
    let mut read = ReadBuf::uninit(&mut room);
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
