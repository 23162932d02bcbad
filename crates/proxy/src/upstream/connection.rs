//! An HTTP/1.1 connection to an upstream, one request at a time.
//!
//! There is no task for each connection: its owner reads and writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::dialer::Dialer;
use super::head_limits::HeadLimits;
use super::settings::Protocol;
use super::target_error::TargetError;
use crate::http::http1::{
    BadResponse, Framing, ParsedResponse, Piece, RemainingBody, WriteBuffer, poll_head_bytes, read_response,
};
use crate::transport::{BodyData, Relay, Transport};
use tidegate_limit::clock::timer::Timer;
use tidegate_metrics::{GaugeGuard, UpstreamMetrics};

/// Less than the keep-alive timeout of most servers (Node.js: 5 s). So the gateway usually closes an idle connection
/// before the upstream does.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// A connection that was in use within this time is checked only in the runtime before a repeatable request, not in the
/// kernel. In a pool under load, connections are idle for a few milliseconds between two requests. A connection that
/// is idle for longer is not under load, so the system call does not matter.
const JUST_USED: Duration = Duration::from_millis(10);

/// A head is long if it does not fit into the first read.
const LONG_HEAD: usize = 3 * 1024;

/// An HTTP/1.1 connection. Closes on drop.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Transport,
    /// Bytes that were read and not consumed yet.
    unread: Bytes,
    pub(super) outgoing: WriteBuffer,
    /// Whether any byte was written since the owner last reset this.
    pub(super) has_written: bool,
    /// The timer for the awaited response.
    pub(super) timer: Timer,
    /// When the connection last returned to its pool, or was opened.
    pub(super) idle_since: Instant,
    /// Whether the connection has served a request before. The upstream may have closed it since.
    pub(super) is_reused: bool,
    limits: HeadLimits,
    _open: GaugeGuard,
}

impl Connection {
    /// Opens a connection.
    pub(super) async fn open(dial: &Dialer, metrics: &UpstreamMetrics) -> Result<Box<Self>, TargetError> {
        let (stream, _) = dial.open(Protocol::Http1).await?;
        Ok(Self::new(stream, dial.head_limits(), metrics))
    }

    /// Creates a connection from an open transport.
    pub(super) fn new(stream: Transport, limits: HeadLimits, metrics: &UpstreamMetrics) -> Box<Self> {
        let (outgoing, timer, idle_since) = (WriteBuffer::default(), Timer::new(), Instant::now());
        let (unread, has_written, is_reused, open) = (Bytes::new(), false, false, metrics.connection());
        Box::new(Self { stream, unread, outgoing, has_written, timer, idle_since, is_reused, limits, _open: open })
    }

    /// Returns `true` if the connection can serve a request: it is open, has not expired, and has received no bytes.
    ///
    /// This takes a system call: the runtime's state is only as recent as its last poll for events. The call is skipped
    /// for a connection that was just used, if the request `is_repeatable` and the runtime knows of no event. If the
    /// connection has ended nevertheless, it did so after the last poll, about 0.5 ms ago under full load. The request
    /// then fails and is sent again.
    pub(super) fn is_usable(&mut self, now: Instant, is_repeatable: bool) -> bool {
        let idle = now.saturating_duration_since(self.idle_since);
        idle < IDLE_TIMEOUT && self.stream.has_nothing_to_read(is_repeatable && idle < JUST_USED)
    }

    /// Returns `true` if bytes follow the response. They must not be parsed as the next response.
    pub(super) fn has_unread_bytes(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Writes the write buffer.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.outgoing.len();
        let polled = self.outgoing.poll_write(&mut self.stream, cx);
        self.has_written |= self.outgoing.len() < before;
        polled
    }

    /// Closes the write half.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Takes the head of a response from the bytes that were read, once it is complete. Its fields replace the content of
    /// `fields`.
    pub(super) fn take_head(&mut self, fields: &mut HeaderMap) -> io::Result<Option<ParsedResponse>> {
        if !self.unread.is_empty()
            && let Some(response) = read_response(&self.unread, fields, self.limits.fields).map_err(invalid)?
        {
            _ = self.unread.split_to(response.length);
            return Ok(Some(response));
        }
        if self.unread.len() >= self.limits.bytes {
            return Err(invalid(BadResponse::TooLarge));
        }
        Ok(None)
    }

    /// Returns `true` if the bytes that were read are the start of a long head.
    pub(super) fn has_long_head(&self) -> bool {
        self.unread.len() >= LONG_HEAD
    }

    /// Reads more of a head.
    pub(super) fn poll_head_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(poll_head_bytes(&mut self.stream, &mut self.unread, cx))? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Takes the next piece of a body from the bytes that were read.
    pub(super) fn take_piece(&mut self, remaining: &mut RemainingBody) -> io::Result<Piece> {
        remaining.take(&mut self.unread).map_err(|_| invalid(BadResponse::Chunks))
    }

    /// Checks those bytes of a chunked body that were read together with the head.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub(super) fn check_chunks(&self) -> io::Result<()> {
        let (mut remaining, mut unread) = (RemainingBody::new(Framing::Chunked), self.unread.clone());
        while let Piece::Data(_) = remaining.take(&mut unread).map_err(|_| invalid(BadResponse::Chunks))? {}
        Ok(())
    }

    /// Returns `true` if a [`Relay`] can move bodies from and to this connection.
    pub(super) fn is_relayable(&self) -> bool {
        self.stream.relayable().is_some()
    }

    /// Moves more of a body into the pipe of the relay. See [`RemainingBody::poll_relay`].
    pub(super) fn poll_relay(
        &self,
        remaining: &mut RemainingBody,
        relay: Option<&Relay>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<BodyData>>> {
        remaining.poll_relay(relay, self.stream.relayable(), cx)
    }

    /// Returns the bytes that were read and not consumed.
    pub(super) fn unread(&mut self) -> &mut Bytes {
        &mut self.unread
    }

    /// Reads more of a body. All bytes must have been consumed. Returns `false` at the end of the connection.
    pub(super) fn poll_more(&mut self, remaining: &RemainingBody, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        remaining.poll_more(&mut self.stream, &mut self.unread, cx)
    }
}

fn invalid(cause: BadResponse) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::upstream::address::Address;
    use tidegate_metrics::Metrics;
    use tidegate_rules::settings::upstream::UpstreamSettings;

    #[tokio::test]
    async fn repeatable_request_skips_the_system_call_after_recent_use() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let dial = Dialer::plaintext(address, None, &UpstreamSettings::new("api".into(), Vec::new()));
        let mut connection = Connection::open(&dial, &Metrics::of_gateway(&[]).upstream("api")).await.unwrap();
        let mut other = listener.accept().unwrap().0;
        // No read has returned `WouldBlock` yet, so the runtime assumes that the socket is readable.
        assert!(connection.is_usable(connection.idle_since, true));

        other.write_all(b"HTTP/1.1 200 OK").unwrap();
        let mut usable = |after, is_repeatable| connection.is_usable(connection.idle_since + after, is_repeatable);
        assert!(usable(Duration::ZERO, true), "only the kernel knows of these bytes");
        assert!(!usable(Duration::ZERO, false));
        assert!(!usable(JUST_USED, true));
        std::future::poll_fn(|cx| connection.stream.poll_readable(cx)).await.unwrap();
        assert!(!connection.is_usable(connection.idle_since, true));
    }
}
