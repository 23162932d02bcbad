//! The write buffer of a connection. Heads and short bodies are copied into one piece; long bodies are written as they are.
//!
//! Copying a short body costs less than a vectored write; copying a long one costs more.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use tokio::io::AsyncWrite;

/// The longest part of a body that is copied.
const SHORT: usize = 2 * 1024;

/// A larger buffer is freed after use.
const KEPT: usize = 8 * 1024;

/// The parts to write, in this order.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// How many bytes of them are written.
    written: usize,
    long: Bytes,
    end: &'static [u8],
}

impl Outgoing {
    /// How many bytes are still to write.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written + self.long.len() + self.end.len()
    }

    /// May another part be pushed? Not before a long part is written.
    pub(crate) fn has_room(&self) -> bool {
        self.long.is_empty() && self.end.is_empty() && self.bytes.len() < KEPT
    }

    /// The buffer to write a head into.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops everything that is not written.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }

    /// Adds a part of a body. Requires [`has_room`](Self::has_room).
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.len() <= SHORT { self.bytes.extend_from_slice(&data) } else { self.long = data }
    }

    /// Adds a chunk. Skips an empty one, which would end the body.
    pub(crate) fn push_chunk(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        super::write::chunk_size(&mut self.bytes, data.len());
        if data.len() <= SHORT {
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

    /// Writes as much as possible; ready when all is written and flushed.
    pub(crate) fn poll_write(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.len() > 0 {
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
        ready!(Pin::new(stream).poll_flush(cx))?;
        if self.bytes.capacity() > KEPT {
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Takes so many bytes at a time.
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

    #[test]
    fn what_was_pushed_arrives_in_its_order_whatever_its_length_and_the_width_of_the_way() {
        for (width, length) in [(1, 0), (1, 1), (7, 2048), (7, 2049), (1000, 100_000), (200_000, 100_000)] {
            let (mut outgoing, mut narrow) = (Outgoing::default(), Narrow(Vec::new(), width));
            let mut cx = Context::from_waker(Waker::noop());
            let mut write = |outgoing: &mut Outgoing| {
                assert!(matches!(outgoing.poll_write(&mut narrow, &mut cx), Poll::Ready(Ok(()))));
                assert!(outgoing.len() == 0 && outgoing.has_room());
            };
            let data = Bytes::from(vec![b'x'; length]);
            outgoing.bytes().extend_from_slice(b"head ");
            outgoing.push(data.clone());
            write(&mut outgoing);
            outgoing.push_chunk(data.clone());
            write(&mut outgoing);
            outgoing.push_end(&HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("e"))]));
            write(&mut outgoing);
            let x = "x".repeat(length);
            let chunk = if length == 0 { String::new() } else { format!("{length:x}\r\n{x}\r\n") };
            assert_eq!(narrow.0, format!("head {x}{chunk}0\r\netag: e\r\n\r\n").as_bytes(), "{width} {length}");
        }
    }
}
