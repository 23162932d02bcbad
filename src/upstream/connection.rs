//! One connection to an upstream: HTTP/1.1, one request at a time.
//!
//! Whoever waits for an answer, or reads it, moves the connection's bytes: a task of its own would be woken, queued and
//! run twice for every request. Only where both directions may have to move at once, or where nobody waits any more, does
//! a connection get a task.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::client::conn::http1::{self, Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::address::Address;
use super::body::RequestBody;
use super::pool::IDLE_TIMEOUT;
use super::relay::Relay;
use super::timer::Timer;

/// The most that is buffered of a message in one direction. Bodies beyond it wait for whoever reads them.
const BUFFER: usize = 64 * 1024;

/// The sending half and what moves the bytes; whoever drops it closes the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    /// None once it has ended, or a task of its own has it.
    driven: Option<Driven>,
    /// For the answer that is being waited for.
    pub(crate) timer: Timer,
    /// When it was last given back to its pool.
    pub(crate) idle_since: Instant,
}

/// What moves the bytes, for whoever waits for them.
#[derive(Debug)]
struct Driven {
    io: http1::Connection<TokioIo<TcpStream>, RequestBody>,
    relay: Arc<Relay>,
    /// The relay's own.
    waker: Waker,
}

impl Connection {
    /// Opens a connection.
    pub(crate) async fn open(address: &Address, limit: Duration) -> io::Result<Box<Self>> {
        let stream = address.connect(limit).await?;
        let handshake = Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream)).await;
        let (sender, io) = handshake.map_err(io::Error::other)?;
        let relay = Arc::new(Relay::default());
        let driven = Some(Driven { io, waker: Waker::from(relay.clone()), relay });
        Ok(Box::new(Self { sender, driven, timer: Timer::new(), idle_since: Instant::now() }))
    }

    /// Polls what comes from this connection, after moving its bytes if that is for its reader to do.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut what: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        loop {
            let Some(driven) = &mut self.driven else { return what(cx) };
            driven.relay.listen(cx.waker());
            // What goes wrong is told to the request that it happens to.
            let over = Pin::new(&mut driven.io).poll(&mut Context::from_waker(&driven.waker)).is_ready();
            driven.relay.hush();
            // It can be nowhere but here that the connection brings it, so that nobody has to be woken then.
            let polled = what(&mut Context::from_waker(Waker::noop()));
            if over {
                self.driven = None;
            } else if polled.is_pending() && driven.relay.listen_again() {
                return polled;
            }
            if polled.is_ready() {
                return polled;
            }
        }
    }

    /// Gives the connection a task of its own, if it has none.
    pub(crate) fn detach(&mut self) {
        if let Some(driven) = self.driven.take() {
            tokio::spawn(async move {
                // What goes wrong is told to the request that it happens to.
                _ = driven.io.await;
            });
        }
    }

    /// The other side closed it, or it broke. Without a task of its own, a connection that nobody reads learns of it with
    /// the next request, which is then not sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Closed, or idle for so long that the other side may be closing it.
    pub(crate) fn is_unusable(&self, now: Instant) -> bool {
        self.is_closed() || now >= self.idle_since + IDLE_TIMEOUT
    }

    /// Its last exchange is over in both directions.
    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}
