//! An HTTP/2 connection: how it is opened and closed, and the number of its streams.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};

use super::keep_alive::{CloseReason, KeepAlive};
use super::{MAX_STREAMS, STREAM_WINDOW, Shared};
use crate::transport::Transport;
use tidegate_metrics::GaugeGuard;

/// The maximum number of bytes of a stream that wait to be written.
const MAX_SEND_BUFFER: usize = 64 * 1024;

/// How many streams that the gateway has reset `h2` remembers, and for how long, because frames of them may still
/// arrive. Many are reset at once if many clients disconnect.
const MAX_RESET_STREAMS: usize = 1000;
const RESET_STREAM_DURATION: Duration = Duration::from_secs(10);
/// The budget of a connection for the overhead of small frames that wait for their readers. `h2` counts 256 bytes for
/// each frame, less its payload, and closes the connection above the budget. The value suffices for messages of 20
/// bytes on almost all streams if no client reads. Five such streams would exceed the default of `h2`.
const SMALL_FRAME_BUDGET: usize = 256 * 1024 * 1024;
/// How many streams `h2` resets because of protocol errors of the upstream before it closes the connection.
const MAX_LOCAL_ERROR_RESETS: usize = 10_000;
/// How many streams the gateway resets before a connection takes no more requests. If many clients disconnect, an
/// upstream can take the resets for an attack ("rapid reset") and close the connection with the requests of all other
/// clients. Netty does so at 200 in 30 seconds, Envoy at 500, nghttp2 at 1,000. The limit leaves room for a reset of
/// all open streams.
const MAX_RESETS: u32 = 199 - MAX_STREAMS;

/// A connection that takes requests. Closes after it was dropped and its last request has ended.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    state: Arc<ConnectionState>,
}

/// The state that the task of a connection shares with its requests.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Requests in flight.
    streams: AtomicUsize,
    /// Requests so far.
    served: AtomicU64,
    /// Counts events from the upstream, other than responses to PING.
    received: AtomicU64,
    /// Streams that the gateway has reset.
    resets: AtomicU32,
}

/// The right to open one stream. On drop, frees the stream slot, and counts a reset if the stream is still open.
#[derive(Debug)]
pub(super) struct StreamSlot {
    pub(super) sender: SendRequest<Bytes>,
    state: Arc<ConnectionState>,
    /// Whether the connection has served others before.
    pub(super) is_reused: bool,
    /// Whether the stream was opened and has not ended.
    is_open: bool,
}

/// Starts HTTP/2 on a connection, and waits for the upstream's SETTINGS. They prove that the upstream supports HTTP/2,
/// and contain its stream limit. No request is sent before, so that a failure allows another attempt.
pub(super) async fn start(stream: Transport, shared: &Arc<Shared>) -> io::Result<Http2Connection> {
    let state = Arc::new(ConnectionState::default());
    let max_head = u32::try_from(shared.head_limits.bytes).unwrap_or(u32::MAX);
    let (sender, connection) = handshake(stream, max_head).await?;
    let open = shared.metrics.connection();
    tokio::spawn(drive(connection, Arc::clone(&state), Arc::downgrade(shared), open));
    Ok(Http2Connection { sender, state })
}

/// Starts HTTP/2 on a connection, and waits for the SETTINGS of the server.
pub(super) async fn handshake(
    stream: Transport,
    max_head: u32,
) -> io::Result<(SendRequest<Bytes>, Connection<Transport, Bytes>)> {
    let (sender, mut connection) = builder(max_head).handshake(stream).await.map_err(io::Error::other)?;
    poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
        Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((sender, connection))
}

fn builder(max_head: u32) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(0) // until the SETTINGS arrive
        .max_header_list_size(max_head)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS)
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .data_frame_budget(SMALL_FRAME_BUDGET)
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .reset_stream_duration(RESET_STREAM_DURATION)
        .max_local_error_reset_streams(Some(MAX_LOCAL_ERROR_RESETS));
    builder
}

/// Reads and writes for all requests of a connection, until it closes.
async fn drive(
    mut connection: Connection<Transport, Bytes>,
    state: Arc<ConnectionState>,
    shared: Weak<Shared>,
    _open: GaugeGuard,
) {
    let mut keep_alive = KeepAlive::new(connection.ping_pong());
    let ended = poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(ended.map_err(io::Error::other));
            }
            match ready!(keep_alive.poll(state.streams.load(Relaxed), state.received.load(Relaxed), cx)) {
                CloseReason::Unresponsive => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                CloseReason::Idle => _ = shared.upgrade().map(|shared| shared.remove_idle(&state)),
            }
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "HTTP/2 connection to upstream broke");
    }
}

// === impl Http2Connection ===

impl Http2Connection {
    /// Returns `true` if the connection takes requests: it is open, has received no GOAWAY, has stream identifiers
    /// left, and the gateway has not reset too many of its streams.
    pub(super) fn is_open(&mut self) -> bool {
        if self.state.resets.load(Relaxed) >= MAX_RESETS {
            return false;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        !matches!(self.sender.poll_ready(cx), Poll::Ready(Err(_)))
    }

    pub(super) fn has_state(&self, state: &Arc<ConnectionState>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state.streams.load(Relaxed) > 0
    }

    /// Takes a stream slot, if one is free.
    pub(super) fn try_take_slot(&self) -> Option<StreamSlot> {
        let max_streams = self.sender.current_max_send_streams().min(MAX_STREAMS as usize);
        if self.state.streams.load(Relaxed) >= max_streams {
            return None;
        }
        self.state.streams.fetch_add(1, Relaxed);
        let is_reused = self.state.served.fetch_add(1, Relaxed) > 0;
        let (sender, state) = (self.sender.clone(), Arc::clone(&self.state));
        Some(StreamSlot { sender, state, is_reused, is_open: false })
    }
}

// === impl StreamSlot ===

impl StreamSlot {
    /// Records an event from the upstream.
    pub(super) fn record_received(&self) {
        self.state.received.fetch_add(1, Relaxed);
    }

    /// Records that the stream was opened.
    pub(super) fn stream_opened(&mut self) {
        self.is_open = true;
    }

    /// Records that the stream has ended in both directions, or that the upstream has reset it.
    pub(super) fn stream_ended(&mut self) {
        self.is_open = false;
    }

    /// Records that the stream has failed. `h2` resets it if the upstream has violated the protocol.
    pub(super) fn stream_failed(&mut self, error: &h2::Error) {
        self.is_open &= error.is_library() && error.is_reset();
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        if self.is_open {
            self.state.resets.fetch_add(1, Relaxed);
        }
        self.state.streams.fetch_sub(1, Relaxed);
    }
}
