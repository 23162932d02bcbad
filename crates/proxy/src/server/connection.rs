//! Serves one connection, from its first byte to its end.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::time::{Instant, sleep};

use super::activity::{Activity, SLOW_HEAD};
use super::connection_slots::ConnectionSlot;
use super::driver::{ConnectionDriver, End, wait_for_drain_grace};
use super::handshake::handshake;
use super::http1::Http1;
use super::http2::Http2;
use super::metered_socket::MeteredSocket;
use super::protocol::{Protocol, ProtocolChoice};
use super::proxy_protocol::read_header;
use super::socket::Socket;
use super::{HttpService, ServerContext};
use crate::transport::Transport;
use tidegate_limit::clock::timer::Timer;
use tidegate_metrics::GaugeGuard;

/// A client's connection. An idle connection holds nothing else, so its size matters.
struct ClientConnection<S> {
    socket: SocketState,
    service: S,
    driver: ConnectionDriver,
    slot: Arc<ConnectionSlot>,
    /// Counts the connection, once its protocol is known.
    counted: Option<GaugeGuard>,
}

/// The socket of a connection between two stages.
enum SocketState {
    /// No byte has been read.
    New(Transport),
    /// The connection waits for the next request.
    Idle(Socket),
    /// A protocol implementation owns the socket.
    InUse,
}

/// Serves a connection until the client closes it, a timeout passes, or the server drains.
pub(crate) fn serve<S: HttpService>(
    stream: Transport,
    service: S,
    activity: Arc<Activity>,
    context: Arc<ServerContext>,
    slot: Arc<ConnectionSlot>,
) -> impl Future<Output = ()> + Send {
    let mut connection = ClientConnection {
        socket: SocketState::New(stream),
        service,
        driver: ConnectionDriver { activity, context },
        slot,
        counted: None,
    };
    // The boxed futures are not needed while the connection is idle. Unboxed, they would make every connection larger.
    async move {
        Box::pin(connection.serve_first()).await;
        while connection.next_request().await {
            Box::pin(connection.serve_again()).await;
        }
    }
}

/// Returns the protocols that the client may use. With TLS, ALPN decides before the first byte (RFC 9113 section 3.2).
fn protocol_choice(socket: &Socket, http2: bool) -> ProtocolChoice {
    match socket.alpn_protocol() {
        None if http2 => ProtocolChoice::Detect,
        Some(Some(b"h2")) => ProtocolChoice::Agreed(Protocol::Http2),
        _ => ProtocolChoice::Agreed(Protocol::Http1),
    }
}

fn take_socket(socket: &mut SocketState) -> SocketState {
    replace(socket, SocketState::InUse)
}

// === impl ClientConnection ===

impl<S: HttpService> ClientConnection<S> {
    /// Serves from the first byte until the connection is idle or closed.
    async fn serve_first(&mut self) {
        let SocketState::New(stream) = take_socket(&mut self.socket) else { return };
        let ConnectionDriver { activity, context } = &self.driver;
        let Some(stream) = read_header(stream, context, &self.slot).await else { return };
        let Some(stream) = handshake(stream, context, activity, &self.slot).await else { return };
        let mut io = MeteredSocket::new(Socket::new(stream, activity.clone()));
        let protocol = self.detect_protocol(&mut io).await;
        let metrics = &self.driver.context.metrics;
        self.counted = protocol.map(|protocol| metrics.protocol_connection(protocol == Protocol::Http2));
        match protocol {
            Some(Protocol::Http1) => self.serve_http1(io).await,
            Some(Protocol::Http2) => self.serve_http2(io).await,
            None => {}
        }
    }

    /// Serves an idle connection that has become readable.
    async fn serve_again(&mut self) {
        if let SocketState::Idle(socket) = take_socket(&mut self.socket) {
            self.serve_http1(MeteredSocket::new(socket)).await;
        }
    }

    /// Detects the protocol from the first bytes, which stay in the buffer. Returns `None` on timeout.
    async fn detect_protocol(&mut self, io: &mut MeteredSocket) -> Option<Protocol> {
        let ConnectionDriver { activity, context } = &self.driver;
        let timeout = context.limits.header_timeout;
        let mut timed_out = pin!(sleep(timeout));
        let mut drained = pin!(wait_for_drain_grace(&context.drain));
        let choice = protocol_choice(io.socket(), context.http2);
        loop {
            let is_first = io.prefetched().is_empty();
            tokio::select! {
                biased;
                read = poll_fn(|cx| io.poll_prefetch(cx)) => read.ok().filter(|count| *count > 0)?,
                () = &mut timed_out => {
                    if !is_first {
                        context.metrics.rejected(SLOW_HEAD);
                    }
                    return None;
                }
                () = &mut drained => return None,
            };
            if let Some(protocol) = choice.detect(io.prefetched()) {
                activity.set_protocol(protocol);
                return Some(protocol);
            }
            if is_first {
                timed_out.as_mut().reset(Instant::now() + timeout);
            }
        }
    }

    /// Serves requests until the connection is idle or closed. Of an idle connection, keeps only the socket.
    async fn serve_http1(&mut self, io: MeteredSocket) {
        let context = Arc::clone(&self.driver.context);
        let mut connection = Http1::new(io, self.service.clone(), self.slot.connection_peer(), context);
        if let End::Idle = self.driver.drive(Pin::new(&mut connection), true).await {
            self.socket = connection.into_socket().map_or(SocketState::InUse, SocketState::Idle);
        }
    }

    async fn serve_http2(&mut self, io: MeteredSocket) {
        let context = Arc::clone(&self.driver.context);
        let mut connection = Http2::new(io, self.service.clone(), self.slot.connection_peer(), context);
        self.driver.drive(Pin::new(&mut connection), false).await;
    }

    /// Waits for the next request of an idle connection. Returns `false` if the connection timed out or the server
    /// drains. A drain closes idle connections with
    /// [`OpenConnections::close_idle`](super::open_connections::OpenConnections::close_idle), so this function does
    /// not wait for it.
    async fn next_request(&mut self) -> bool {
        let (SocketState::Idle(socket), driver) = (&self.socket, &self.driver) else { return false };
        if driver.context.drain.has_started() {
            return false;
        }
        let mut timer = Timer::new();
        poll_fn(|cx| {
            if let Poll::Ready(readable) = socket.poll_readable(cx) {
                return Poll::Ready(readable.is_ok());
            }
            while let Some(until) = driver.next_check() {
                ready!(timer.poll(until, cx));
            }
            Poll::Ready(false)
        })
        .await
    }
}
