//! One connection to an upstream: HTTP/1.1, one request at a time.
//!
//! It has no task of its own: its owner reads and writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::dialer::Dialer;
use super::settings::Protocol;
use super::target_error::TargetError;
use crate::http1::{
    Framing, Malformed, ParsedResponse, Piece, RemainingBody, WriteBuffer, poll_head_bytes, read_response,
};
use crate::metrics::{GaugeGuard, UpstreamMetrics};
use crate::timer::Timer;
use crate::transport::Transport;

/// Less than the shortest keep-alive of common servers (Node.js: 5 s), so that it is we who close, and no request meets
/// a connection that the other side is just closing.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The longest head of an answer.
const MAX_HEAD: usize = 64 * 1024;

/// Of a connection that was in use less than this ago, the runtime's word is taken for requests that may be repeated. Those of a
/// pool that serves hundreds of requests at a time rest for some milliseconds between two of them; one that rests for longer is
/// not in steady use, and the system call costs little where there is little to do.
const JUST_USED: Duration = Duration::from_millis(10);

/// A connection. On drop, it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Transport,
    /// Bytes read and not consumed yet.
    unread: Bytes,
    pub(super) outgoing: WriteBuffer,
    /// Whether any of what was to be written for the present request has been.
    pub(super) has_written: bool,
    /// For the answer that is being waited for.
    pub(super) timer: Timer,
    /// When it was last given back to its pool.
    pub(super) idle_since: Instant,
    /// Whether it has served a request before: then it may have been closed before the next one arrived.
    pub(super) is_reused: bool,
    _open: GaugeGuard,
}

impl Connection {
    /// Opens a connection.
    pub(super) async fn open(dial: &Dialer, metrics: &UpstreamMetrics) -> Result<Box<Self>, TargetError> {
        let (stream, _) = dial.open(Protocol::Http1).await?;
        Ok(Self::new(stream, metrics))
    }

    /// One that was opened already.
    pub(super) fn new(stream: Transport, metrics: &UpstreamMetrics) -> Box<Self> {
        let (outgoing, timer, idle_since) = (WriteBuffer::default(), Timer::new(), Instant::now());
        let (unread, has_written, is_reused, open) = (Bytes::new(), false, false, metrics.connection());
        Box::new(Self { stream, unread, outgoing, has_written, timer, idle_since, is_reused, _open: open })
    }

    /// Whether it may serve a request: open, idle for less time than the other side may close it after, and nothing
    /// was sent unasked.
    ///
    /// The system is asked: the runtime knows only what it was told when it last waited for events, and a connection that
    /// was closed, or has brought more than was asked for, would be taken for a sound one until then. That is a system
    /// call. A connection that has just been used is spared it if the request `is_repeatable`: unless the runtime says
    /// that something came, the end of the connection could have come in the last moment only, and is then found out by
    /// sending. That moment is as long as a turn of the runtime, half a millisecond under full load, however long the
    /// connection was idle: whatever came before the runtime last looked for events is known to it.
    pub(super) fn is_usable(&mut self, now: Instant, is_repeatable: bool) -> bool {
        let idle = now.saturating_duration_since(self.idle_since);
        idle < IDLE_TIMEOUT && self.stream.has_nothing_to_read(is_repeatable && idle < JUST_USED)
    }

    /// Whether bytes came behind the answer. They must not be taken for the next answer.
    pub(super) fn has_surplus(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Writes what is to be written.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.outgoing.len();
        let polled = self.outgoing.poll_write(&mut self.stream, cx);
        self.has_written |= self.outgoing.len() < before;
        polled
    }

    /// Closes the half on which requests are sent.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Waits for the first byte of an answer.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            if ready!(poll_head_bytes(&mut self.stream, &mut self.unread, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the head of an answer. Its fields take the place of `fields`, which are empty.
    pub(super) fn poll_head(
        &mut self,
        fields: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ParsedResponse>> {
        loop {
            if !self.unread.is_empty()
                && let Some(answer) = read_response(&self.unread, fields).map_err(invalid)?
            {
                _ = self.unread.split_to(answer.length);
                return Poll::Ready(Ok(answer));
            }
            if self.unread.len() >= MAX_HEAD {
                return Poll::Ready(Err(invalid(Malformed)));
            }
            if ready!(poll_head_bytes(&mut self.stream, &mut self.unread, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Takes the next piece of a body from what has been read.
    pub(super) fn take(&mut self, left: &mut RemainingBody) -> io::Result<Piece> {
        left.take(&mut self.unread).map_err(invalid)
    }

    /// Checks the beginning of a chunked body, as far as the read of the head has read it.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub(super) fn check_chunks(&self) -> io::Result<()> {
        let (mut left, mut unread) = (RemainingBody::new(Framing::Chunked), self.unread.clone());
        while let Piece::Data(_) = left.take(&mut unread).map_err(invalid)? {}
        Ok(())
    }

    /// What was read and not used.
    pub(super) fn unread(&mut self) -> &mut Bytes {
        &mut self.unread
    }

    /// Reads more of a body where all that was read is used; false at the end of the connection.
    pub(super) fn poll_more(&mut self, left: &RemainingBody, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        left.poll_more(&mut self.stream, &mut self.unread, cx)
    }
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use http::uri::Authority;

    use super::*;
    use crate::metrics::Metrics;
    use crate::upstream::settings::UpstreamSettings;

    #[tokio::test]
    async fn a_request_that_may_be_repeated_believes_the_runtime_for_a_moment() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = Authority::try_from(listener.local_addr().unwrap().to_string()).unwrap();
        let dial = Dialer::clear(&authority, &UpstreamSettings::new("api".into(), Vec::new()));
        let mut connection = Connection::open(&dial, &Metrics::new().upstream("api")).await.unwrap();
        let mut other = listener.accept().unwrap().0;
        // Nothing has been read yet, so that the runtime cannot know that there is nothing.
        assert!(connection.is_usable(connection.idle_since, true));

        other.write_all(b"HTTP/1.1 200 OK").unwrap();
        let mut usable = |after, is_repeatable| connection.is_usable(connection.idle_since + after, is_repeatable);
        assert!(usable(Duration::ZERO, true), "only the kernel knows");
        assert!(!usable(Duration::ZERO, false));
        assert!(!usable(JUST_USED, true));
        std::future::poll_fn(|cx| connection.stream.poll_readable(cx)).await.unwrap();
        assert!(!connection.is_usable(connection.idle_since, true));
    }
}
