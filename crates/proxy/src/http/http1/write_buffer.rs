//! The write buffer of a connection. Heads and short body parts are copied into one buffer; long body parts are not
//! copied.
//!
//! A copy of a short part costs less than a vectored write, and a copy of a long part costs more.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use crate::transport::{BodyData, Relay, Transport};

/// The longest body part that is copied.
const MAX_COPIED: usize = 2 * 1024;

/// The largest capacity that is kept after use.
const MAX_KEPT: usize = 8 * 1024;

/// The data to write, in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    bytes: Vec<u8>,
    /// The number of `bytes` that have been written.
    written: usize,
    long: Bytes,
    end: &'static [u8],
    /// The number of bytes in the pipe of the relay, which follow.
    piped: usize,
    /// Moves a body whose length is known. `None` if its bytes must be copied.
    relay: Option<Relay>,
}

/// A stream that bodies are written to.
pub(crate) trait BodySink: AsyncWrite + Unpin {
    /// Writes bytes from the pipe of a relay. By default, the stream has no relays.
    fn poll_write_piped(&mut self, _: &Relay, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl WriteBuffer {
    /// Returns the number of bytes that are still to be written.
    #[inline] // called for each response, in the crate that has the service
    pub(crate) fn len(&self) -> usize {
        self.unpiped() + self.piped
    }

    fn unpiped(&self) -> usize {
        self.bytes.len() - self.written + self.long.len() + self.end.len()
    }

    /// Sets the relay of the next body, which must have a known length.
    #[inline] // called for each response, in the crate that has the service
    pub(crate) fn set_relay(&mut self, relay: Option<Relay>) {
        self.relay = relay;
    }

    /// Polls the body that is written next.
    pub(crate) fn poll_body<T>(&self, poll: impl FnOnce() -> T) -> T {
        match &self.relay {
            Some(relay) => relay.poll_body(poll),
            None => poll(),
        }
    }

    /// Returns `true` if another part can be pushed. A long part must be written first.
    #[inline] // called for each response, in the crate that has the service
    pub(crate) fn can_push(&self) -> bool {
        self.long.is_empty() && self.end.is_empty() && self.piped == 0 && self.bytes.len() < MAX_KEPT
    }

    /// Returns the buffer for a head.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops all unwritten data.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }

    /// Adds a body part. Requires [`can_push`](Self::can_push).
    pub(crate) fn push(&mut self, data: BodyData) {
        match data {
            BodyData::Piped(length) => self.piped = length,
            BodyData::Bytes(data) if data.len() <= MAX_COPIED => self.bytes.extend_from_slice(&data),
            BodyData::Bytes(data) => self.long = data,
        }
    }

    /// Adds a chunk. Skips an empty one, which would end the body.
    pub(crate) fn push_chunk(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        super::write::chunk_size(&mut self.bytes, data.len());
        if data.len() <= MAX_COPIED {
            self.bytes.extend_from_slice(&data);
            self.bytes.extend_from_slice(b"\r\n");
        } else {
            (self.long, self.end) = (data, b"\r\n");
        }
    }

    /// Adds the last chunk and the trailers.
    pub(crate) fn push_end(&mut self, trailers: &HeaderMap) {
        self.bytes.extend_from_slice(b"0\r\n");
        super::write::fields(&mut self.bytes, trailers);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes as much as possible. Returns `Ready` when all data is written and flushed.
    pub(crate) fn poll_write(&mut self, stream: &mut impl BodySink, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unpiped() > 0 {
            let bytes = &self.bytes[self.written..];
            let written = if self.long.is_empty() && self.end.is_empty() {
                ready!(Pin::new(&mut *stream).poll_write(cx, bytes))?
            } else {
                let slices = [IoSlice::new(bytes), IoSlice::new(&self.long), IoSlice::new(self.end)];
                ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        while self.piped > 0 {
            let Some(relay) = &self.relay else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
            let written = ready!(stream.poll_write_piped(relay, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.piped = self.piped.saturating_sub(written);
        }
        ready!(Pin::new(stream).poll_flush(cx))?;
        if self.bytes.capacity() > MAX_KEPT {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut count: usize) {
        let bytes = count.min(self.bytes.len() - self.written);
        self.written += bytes;
        count -= bytes;
        let long = count.min(self.long.len());
        self.long.advance(long);
        self.end = &self.end[count - long..];
    }
}

impl BodySink for Transport {
    fn poll_write_piped(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.relayable() {
            Some(socket) => relay.poll_drain(socket, cx),
            None => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }
}

/// Memory, for benchmarks of the codec.
impl BodySink for Vec<u8> {}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A stream that accepts at most this number of bytes at a time.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.poll_write(cx, &slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl BodySink for Narrow {}

    #[test]
    fn pushed_parts_are_written_in_order() {
        for (width, length) in [(1, 0), (1, 1), (7, 2048), (7, 2049), (1000, 100_000), (200_000, 100_000)] {
            let (mut buffer, mut narrow) = (WriteBuffer::default(), Narrow(Vec::new(), width));
            let mut cx = Context::from_waker(Waker::noop());
            let mut write = |buffer: &mut WriteBuffer| {
                assert!(matches!(buffer.poll_write(&mut narrow, &mut cx), Poll::Ready(Ok(()))));
                assert!(buffer.len() == 0 && buffer.can_push());
            };
            let data = Bytes::from(vec![b'x'; length]);
            buffer.bytes().extend_from_slice(b"head ");
            buffer.push(data.clone().into());
            write(&mut buffer);
            buffer.push_chunk(data.clone());
            write(&mut buffer);
            buffer.push_end(&HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("e"))]));
            write(&mut buffer);
            let x = "x".repeat(length);
            let chunk = if length == 0 { String::new() } else { format!("{length:x}\r\n{x}\r\n") };
            assert_eq!(narrow.0, format!("head {x}{chunk}0\r\netag: e\r\n\r\n").as_bytes(), "{width} {length}");
        }
    }
}
