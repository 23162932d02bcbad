//! The socket of an HTTP/2 connection to an upstream. Scans the received frames for malformed heads and trailers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http2::{MalformedStreams, TrailerScanner};
use crate::transport::Transport;

/// The length of a frame's header.
const FRAME_HEADER: usize = 9;

/// A socket whose received frames are scanned.
#[derive(Debug)]
pub(super) struct ScanningSocket {
    stream: Transport,
    /// The received bytes of the next frame's header, their number, and the remaining bytes of the current frame's
    /// payload.
    header: [u8; FRAME_HEADER],
    filled: usize,
    remaining: usize,
    trailers: TrailerScanner,
    malformed: Arc<MalformedStreams>,
    malformed_heads: Arc<MalformedStreams>,
}

impl ScanningSocket {
    pub(super) fn new(
        stream: Transport,
        malformed: Arc<MalformedStreams>,
        malformed_heads: Arc<MalformedStreams>,
    ) -> Self {
        Self {
            stream,
            header: [0; FRAME_HEADER],
            filled: 0,
            remaining: 0,
            trailers: TrailerScanner::for_responses(),
            malformed,
            malformed_heads,
        }
    }

    /// Scans received bytes.
    ///
    /// # Errors
    /// The upstream has sent too many malformed heads or trailers on streams that the gateway has reset. Further ones could not be
    /// detected.
    fn scan(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at(self.remaining.min(bytes.len()));
            self.remaining -= payload.len();
            let mut malformed = None;
            if !payload.is_empty() && self.trailers.needs_payload() {
                malformed = self.trailers.read_payload(payload, self.remaining);
            }
            let taken = (FRAME_HEADER - self.filled).min(rest.len());
            self.header[self.filled..self.filled + taken].copy_from_slice(&rest[..taken]);
            bytes = &rest[taken..];
            self.filled += taken;
            if self.filled == FRAME_HEADER {
                let [a, b, c, kind, flags, stream @ ..] = self.header;
                self.filled = 0;
                self.remaining = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                malformed =
                    malformed.or(self.trailers.begin_frame(self.remaining, kind, flags, u32::from_be_bytes(stream)));
            }
            let head = self.trailers.take_malformed_head();
            let is_full =
                |streams: &MalformedStreams, found: Option<u32>| found.is_some_and(|found| !streams.add(found));
            if is_full(&self.malformed, malformed) || is_full(&self.malformed_heads, head) {
                return Err(io::Error::other("too many malformed heads or trailers"));
            }
        }
        Ok(())
    }
}

impl AsyncRead for ScanningSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.scan(&buffer.filled()[before..])?;
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
