//! One connection: how it is opened, what ends it, and how many requests are on it.

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
use super::scanning_socket::ScanningSocket;
use super::{MAX_STREAMS, STREAM_WINDOW, Shared};
use crate::http2::MalformedStreams;
use crate::metrics::GaugeGuard;
use crate::transport::Transport;

/// The longest head of an answer.
const MAX_HEAD: u32 = 64 * 1024;
/// The most bytes of a stream that wait to be written.
const BUFFER: usize = 64 * 1024;

/// Streams that were reset here, of which frames may still be on their way, and how long they are remembered. They come in
/// numbers when many clients leave at once.
const RESETS: usize = 1000;
const RESETS_REMEMBERED: Duration = Duration::from_secs(10);
/// What `h2` allows for the overhead of small frames (256 bytes each, less what they carry) that wait for their readers on a
/// connection, before it ends the connection. It is enough for messages of 20 bytes on all streams but a few, with no client
/// reading any; what `h2` takes unless it is told would be used up by five.
const SMALL_FRAMES: usize = 256 * 1024 * 1024;
/// Streams that `h2` resets for what the upstream sent on them, before it ends the connection.
const FAULTS: usize = 10_000;
/// Streams that are reset from here before a connection takes no more requests. Clients that leave in numbers are no attack of
/// ours, but servers take it for one ("rapid reset") and end the connection with the requests of all others: Netty's at 200
/// in 30 seconds, Envoy at 500, nghttp2's at 1,000. Those that are open by then may all be reset as well.
const SPENT: u32 = 199 - MAX_STREAMS;

/// A connection that takes requests. It ends when it has been let go, and its last request is over.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    state: Arc<ConnectionState>,
}

/// What a connection's task and its requests know of it.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Requests on it.
    streams: AtomicUsize,
    /// Requests that there have been.
    served: AtomicU64,
    /// How often something came that was not asked for by a ping.
    heard: AtomicU64,
    /// Streams that were reset from here.
    resets: AtomicU32,
    malformed: Arc<MalformedStreams>,
}

/// The right to send one request. On drop, there is room for another, and a stream that was opened and has not ended was reset.
#[derive(Debug)]
pub(super) struct StreamSlot {
    pub(super) sender: SendRequest<Bytes>,
    state: Arc<ConnectionState>,
    /// Whether the connection has served others before.
    pub(super) is_reused: bool,
    /// A stream was opened, and has not ended.
    is_open: bool,
}

/// Begins on a connection, and waits for the upstream's SETTINGS: they tell that it speaks HTTP/2 at all, and how many
/// requests it takes. Until then nothing is sent, and whatever fails can be tried elsewhere.
pub(super) async fn start(stream: Transport, shared: &Arc<Shared>) -> io::Result<Http2Connection> {
    let state = Arc::new(ConnectionState::default());
    let (sender, connection) = handshake(ScanningSocket::new(stream, Arc::clone(&state.malformed))).await?;
    let open = shared.metrics.connection();
    tokio::spawn(drive(connection, Arc::clone(&state), Arc::downgrade(shared), open));
    Ok(Http2Connection { sender, state })
}

async fn handshake(stream: ScanningSocket) -> io::Result<(SendRequest<Bytes>, Connection<ScanningSocket, Bytes>)> {
    let (sender, mut connection) = builder().handshake(stream).await.map_err(io::Error::other)?;
    poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
        Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((sender, connection))
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(0) // until it says how many
        .max_header_list_size(MAX_HEAD)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS)
        .max_send_buffer_size(BUFFER)
        .data_frame_budget(SMALL_FRAMES)
        .max_concurrent_reset_streams(RESETS)
        .reset_stream_duration(RESETS_REMEMBERED)
        .max_local_error_reset_streams(Some(FAULTS));
    builder
}

/// Reads and writes for all requests of a connection, until it ends.
async fn drive(
    mut connection: Connection<ScanningSocket, Bytes>,
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
            match ready!(keep_alive.poll(state.streams.load(Relaxed), state.heard.load(Relaxed), cx)) {
                CloseReason::Unresponsive => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                CloseReason::Idle => _ = shared.upgrade().map(|shared| shared.retire(&state)),
            }
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a connection of HTTP/2 to an upstream broke");
    }
}

// === impl Http2Connection ===

impl Http2Connection {
    /// Whether it takes requests: it is there, was not told to go away, has numbers left, and its upstream has not seen too many
    /// of them reset.
    pub(super) fn is_open(&mut self) -> bool {
        if self.state.resets.load(Relaxed) >= SPENT {
            return false;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        !matches!(self.sender.poll_ready(cx), Poll::Ready(Err(_)))
    }

    pub(super) fn is(&self, state: &Arc<ConnectionState>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state.streams.load(Relaxed) > 0
    }

    /// A place, if there is room.
    pub(super) fn try_take(&self) -> Option<StreamSlot> {
        let room = self.sender.current_max_send_streams().min(MAX_STREAMS as usize);
        if self.state.streams.load(Relaxed) >= room {
            return None;
        }
        self.state.streams.fetch_add(1, Relaxed);
        let is_reused = self.state.served.fetch_add(1, Relaxed) > 0;
        Some(StreamSlot { sender: self.sender.clone(), state: Arc::clone(&self.state), is_reused, is_open: false })
    }
}

// === impl StreamSlot ===

impl StreamSlot {
    /// Something came from the upstream.
    pub(super) fn heard(&self) {
        self.state.heard.fetch_add(1, Relaxed);
    }

    /// The streams whose trailers are malformed.
    pub(super) fn malformed(&self) -> &MalformedStreams {
        &self.state.malformed
    }

    /// A stream was opened.
    pub(super) fn opened(&mut self) {
        self.is_open = true;
    }

    /// It has ended in both directions, or the upstream has reset it.
    pub(super) fn ended(&mut self) {
        self.is_open = false;
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
