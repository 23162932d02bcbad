//! A client's socket, which records activity.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;
use crate::facts::TlsPeer;
use crate::http1::poll_head_bytes;
use crate::transport::Transport;

/// How long a client that is still sending is listened to after its answer. Closed at once, the connection would be
/// reset by what is on its way, and the reset can overtake the answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// The socket and its activity record, which are all that an idle connection needs.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Transport,
    activity: Arc<Activity>,
}

/// A socket that is read and written, and a protocol's meter.
#[derive(Debug)]
pub(crate) struct Watched {
    socket: Socket,
    /// Bytes read before the protocol was known.
    ahead: Bytes,
    /// Boxed, as its size is every connection's, and few need it.
    extra: Option<Box<Extra>>,
}

/// What a connection of HTTP/2 always needs, and one of HTTP/1 only where it lingers at its end.
#[derive(Debug, Default)]
struct Extra {
    meter: Option<Box<dyn Meter>>,
    /// Listening to a client after the end: how long, and for how many bytes more.
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

/// The next bytes for a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRead {
    /// At most this many bytes of the client.
    Client(usize),
    /// These bytes, which the gateway puts in front of the client's.
    Inserted(&'static [u8]),
}

/// A protocol's meter of the bytes on its connection.
pub(crate) trait Meter: fmt::Debug + Send + Sync {
    /// Whether more may be read now.
    fn may_read(&self) -> bool;

    /// Returns the source of the next bytes, for a buffer with this much room.
    fn next_read(&mut self, room: usize) -> NextRead;

    /// These came.
    fn received(&mut self, bytes: &[u8]);

    /// So many were taken.
    fn sent(&mut self, count: usize);

    /// Records whether the socket took all bytes of the last write or flush.
    fn blocked(&mut self, is_blocked: bool);

    /// How long, and for how many bytes, the client is listened to after the end, if at all.
    fn lingers(&self) -> Option<(Duration, usize)>;
}

impl Socket {
    pub(crate) fn new(stream: Transport, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    /// The protocol that its client has agreed to speak (ALPN), if it did; nothing of a connection in clear.
    pub(crate) fn agreed(&self) -> Option<Option<&[u8]>> {
        match &self.stream {
            Transport::Tls(tls) => Some(tls.state().alpn_protocol()),
            Transport::Tcp(_) | Transport::Unix(_) => None,
        }
    }

    /// What TLS tells of the client, where it is spoken.
    pub(crate) fn tls_peer(&self) -> Option<&Arc<TlsPeer>> {
        match &self.stream {
            Transport::Tls(tls) => tls.peer(),
            Transport::Tcp(_) | Transport::Unix(_) => None,
        }
    }

    /// Ready when there is something to read, or the connection is over.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.activity.needs_reset() {
            self.stream.reset_on_drop();
        }
    }
}

impl Watched {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, ahead: Bytes::new(), extra: None }
    }

    /// The socket, without what was needed to read and write it.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    /// Installs a meter; bytes read ahead are metered when they are read.
    pub(crate) fn count_with(&mut self, meter: impl Meter + 'static) {
        self.extra().meter = Some(Box::new(meter));
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    fn meter(&self) -> Option<&dyn Meter> {
        self.extra.as_ref()?.meter.as_deref()
    }

    fn meter_mut(&mut self) -> Option<&mut Box<dyn Meter>> {
        self.extra.as_mut()?.meter.as_mut()
    }

    /// The notes.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.socket.activity
    }

    /// The socket itself, for reads that are not recorded.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads some of what the next reader will get; returns how much.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let polled = poll_head_bytes(&mut self.socket.stream, &mut self.ahead, cx);
        if let Poll::Ready(Ok(count @ 1..)) = polled {
            self.socket.activity.read(count);
        }
        polled
    }

    /// What was read ahead.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Takes what was read ahead.
    pub(crate) fn take_ahead(&mut self) -> Bytes {
        std::mem::take(&mut self.ahead)
    }

    /// Whether the client has closed, as far as the kernel has told: also where bytes that nobody wants yet hide the end.
    pub(crate) fn is_closed(&self) -> bool {
        self.socket.stream.is_closed()
    }

    fn note(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(count)) => {
                self.socket.activity.wrote(Some(*count));
                self.meter_mut().into_iter().for_each(|meter| meter.sent(*count));
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.note_blocked(true),
        }
        polled
    }

    fn note_blocked(&mut self, is_blocked: bool) {
        if is_blocked {
            self.socket.activity.wrote(None);
        }
        self.meter_mut().into_iter().for_each(|meter| meter.blocked(is_blocked));
    }

    fn note_read(&mut self, bytes: &[u8]) {
        self.meter_mut().into_iter().for_each(|meter| meter.received(bytes));
    }

    /// How long, and for how many bytes, the client is listened to after the end, if at all.
    fn lingers(&self) -> Option<(Duration, usize)> {
        let of_protocol = self.meter().and_then(Meter::lingers);
        of_protocol.or_else(|| self.socket.activity.may_be_sending().then_some((LINGER, usize::MAX)))
    }

    /// Discards what arrives until the client closes, time is up, or too much was sent.
    fn poll_linger(&mut self, (time, most): (Duration, usize), cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, extra, .. } = self;
        let extra = extra.get_or_insert_default();
        let (end, left) = extra.lingering.get_or_insert_with(|| (Box::pin(sleep(time)), most));
        let mut scratch = [0; 8 * 1024];
        while *left > 0 {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut socket.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => return end.as_mut().poll(cx).map(Ok),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Whoever drives the connection sees by itself why.
        if self.meter().is_some_and(|meter| !meter.may_read()) {
            return Poll::Pending;
        }
        let max = match self.meter_mut().map(|meter| meter.next_read(buffer.remaining())) {
            None => usize::MAX,
            Some(NextRead::Client(max)) => max,
            Some(NextRead::Inserted(bytes)) => {
                buffer.put_slice(bytes);
                return Poll::Ready(Ok(()));
            }
        };
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining()).min(max);
            let bytes = self.ahead.split_to(count);
            buffer.put_slice(&bytes);
            self.note_read(&bytes);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = match max {
            usize::MAX => Pin::new(&mut self.socket.stream).poll_read(cx, buffer),
            max => poll_read_at_most(&mut self.socket.stream, max, cx, buffer),
        };
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.socket.activity.read(count);
            self.note_read(&buffer.filled()[before..]);
        }
        polled
    }
}

/// Reads at most `max` bytes.
fn poll_read_at_most(
    stream: &mut Transport,
    max: usize,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(max.min(buffer.remaining())));
    let polled = Pin::new(stream).poll_read(cx, &mut part);
    let count = part.filled().len();
    buffer.advance(count);
    polled
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket.stream).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket.stream).poll_write_vectored(cx, slices);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.socket.stream).poll_flush(cx);
        self.note_blocked(polled.is_pending());
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.extra.as_ref().is_none_or(|extra| extra.lingering.is_none()) {
            ready!(Pin::new(&mut self.socket.stream).poll_shutdown(cx))?;
        }
        self.lingers().map_or(Poll::Ready(Ok(())), |how| self.poll_linger(how, cx))
    }
}
