//! A client's socket that records activity and meters bytes.

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
use super::meter::Meter;
use super::socket::Socket;
use crate::http::http1::{BodySink, poll_head_bytes};
use crate::transport::Relay;

/// How long a client that is still sending may continue after its response. If the gateway closed at once, the
/// client's bytes would cause a reset, which can overtake the response.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// A socket in use, with the meter of its protocol.
#[derive(Debug)]
pub(crate) struct MeteredSocket {
    socket: Socket,
    /// Bytes read before the protocol was known.
    prefetched: Bytes,
    /// Boxed, because few connections need it.
    state: Option<Box<MeterState>>,
}

/// State that HTTP/2 connections always need, and HTTP/1 connections only while they linger before the close.
#[derive(Debug, Default)]
struct MeterState {
    meter: Option<Box<dyn Meter>>,
    /// The timer of a lingering close, and how many more bytes are discarded.
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl MeteredSocket {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, prefetched: Bytes::new(), state: None }
    }

    /// Returns the socket, and frees the buffers and the meter.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    /// Installs a meter. Prefetched bytes are metered when they are read.
    pub(crate) fn set_meter(&mut self, meter: impl Meter + 'static) {
        self.state().meter = Some(Box::new(meter));
    }

    fn state(&mut self) -> &mut MeterState {
        self.state.get_or_insert_default()
    }

    fn meter(&self) -> Option<&dyn Meter> {
        self.state.as_ref()?.meter.as_deref()
    }

    fn meter_mut(&mut self) -> Option<&mut Box<dyn Meter>> {
        self.state.as_mut()?.meter.as_mut()
    }

    /// Returns the activity record.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.socket.activity
    }

    /// Returns the socket, for reads that are not recorded.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads bytes into the prefetch buffer. Returns their number.
    pub(crate) fn poll_prefetch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let polled = poll_head_bytes(&mut self.socket.stream, &mut self.prefetched, cx);
        if let Poll::Ready(Ok(count @ 1..)) = polled {
            self.socket.activity.record_read(count);
        }
        polled
    }

    /// Returns the prefetched bytes.
    pub(crate) fn prefetched(&self) -> &[u8] {
        &self.prefetched
    }

    /// Takes the prefetched bytes.
    pub(crate) fn take_prefetched(&mut self) -> Bytes {
        std::mem::take(&mut self.prefetched)
    }

    /// Returns `true` if the kernel reports that the client has closed, even if unread bytes precede the close.
    pub(crate) fn is_closed(&self) -> bool {
        self.socket.stream.is_closed()
    }

    fn record_write(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(count)) => {
                self.socket.activity.record_write(Some(*count));
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.record_blocked(true),
        }
        polled
    }

    /// Meters the part of the slices that the socket took.
    fn meter_sent<'s>(&mut self, polled: &Poll<io::Result<usize>>, slices: impl IntoIterator<Item = &'s [u8]>) {
        let (Some(meter), Poll::Ready(Ok(count))) = (self.meter_mut(), polled) else { return };
        let mut remaining = *count;
        for slice in slices {
            let sent = &slice[..remaining.min(slice.len())];
            remaining -= sent.len();
            meter.on_sent(sent);
        }
    }

    fn record_blocked(&mut self, is_blocked: bool) {
        if is_blocked {
            self.socket.activity.record_write(None);
        }
        self.meter_mut().into_iter().for_each(|meter| meter.set_blocked(is_blocked));
    }

    fn record_read(&mut self, bytes: &[u8]) {
        self.meter_mut().into_iter().for_each(|meter| meter.on_received(bytes));
    }

    /// Returns how long, and for how many bytes, the client is read after the end. Returns `None` to close at once.
    fn linger_limits(&self) -> Option<(Duration, usize)> {
        let protocol_limits = self.meter().and_then(Meter::linger_limits);
        protocol_limits.or_else(|| self.socket.activity.may_be_sending().then_some((LINGER, usize::MAX)))
    }

    /// Discards what arrives until the client closes, the time is up, or the client has sent too much.
    fn poll_linger(&mut self, (duration, max_bytes): (Duration, usize), cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, state, .. } = self;
        let state = state.get_or_insert_default();
        let (end, remaining) = state.linger.get_or_insert_with(|| (Box::pin(sleep(duration)), max_bytes));
        let mut scratch = [0; 8 * 1024];
        while *remaining > 0 {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut socket.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *remaining = remaining.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => return end.as_mut().poll(cx).map(Ok),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for MeteredSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // The connection's task checks the reason itself, so it needs no wakeup.
        if self.meter().is_some_and(|meter| !meter.can_read()) {
            return Poll::Pending;
        }
        if !self.prefetched.is_empty() {
            let count = self.prefetched.len().min(buffer.remaining());
            let bytes = self.prefetched.split_to(count);
            buffer.put_slice(&bytes);
            self.record_read(&bytes);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.socket.stream).poll_read(cx, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.socket.activity.record_read(count);
            self.record_read(&buffer.filled()[before..]);
        }
        polled
    }
}

impl BodySink for MeteredSocket {
    fn poll_write_piped(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let polled = self.socket.stream.poll_write_piped(relay, cx);
        self.record_write(polled)
    }
}

impl AsyncWrite for MeteredSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket.stream).poll_write(cx, bytes);
        self.meter_sent(&polled, [bytes]);
        self.record_write(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket.stream).poll_write_vectored(cx, slices);
        self.meter_sent(&polled, slices.iter().map(|slice| &**slice));
        self.record_write(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.socket.stream).poll_flush(cx);
        self.record_blocked(polled.is_pending());
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.as_ref().is_none_or(|state| state.linger.is_none()) {
            ready!(Pin::new(&mut self.socket.stream).poll_shutdown(cx))?;
        }
        self.linger_limits().map_or(Poll::Ready(Ok(())), |how| self.poll_linger(how, cx))
    }
}
