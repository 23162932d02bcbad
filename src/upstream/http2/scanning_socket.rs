//! The socket of a connection to an upstream, which finds malformed trailers in what comes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http2::{MalformedStreams, TrailerScanner};
use crate::transport::Transport;

const HEAD: usize = 9;

/// A socket on which an upstream sends frames.
#[derive(Debug)]
pub(super) struct ScanningSocket {
    stream: Transport,
    /// The received bytes of the next frame's head, their number, and the bytes left of the present frame.
    head: [u8; HEAD],
    filled: usize,
    left: usize,
    trailers: TrailerScanner,
    malformed: Arc<MalformedStreams>,
}

impl ScanningSocket {
    pub(super) fn new(stream: Transport, malformed: Arc<MalformedStreams>) -> Self {
        Self { stream, head: [0; HEAD], filled: 0, left: 0, trailers: TrailerScanner::for_responses(), malformed }
    }

    fn scan(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at(self.left.min(bytes.len()));
            self.left -= payload.len();
            let mut malformed = None;
            if !payload.is_empty() && self.trailers.needs_payload() {
                malformed = self.trailers.read_payload(payload, self.left);
            }
            let taken = (HEAD - self.filled).min(rest.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&rest[..taken]);
            bytes = &rest[taken..];
            self.filled += taken;
            if self.filled == HEAD {
                let [a, b, c, kind, flags, stream @ ..] = self.head;
                self.filled = 0;
                self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                malformed = malformed.or(self.trailers.begin_frame(self.left, kind, flags, u32::from_be_bytes(stream)));
            }
            if let Some(stream) = malformed {
                self.malformed.add(stream);
            }
        }
    }
}

impl AsyncRead for ScanningSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.scan(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for ScanningSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
