//! One connection to an upstream: HTTP/1.1, one request at a time.

use std::io;
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::address::Address;
use super::body::RequestBody;
use super::gather::Gather;
use super::pool::IDLE_TIMEOUT;
use super::timer::Timer;

/// The most that is buffered of a message in one direction. Bodies beyond it wait for whoever reads them.
const BUFFER: usize = 64 * 1024;

/// The sending half; whoever drops it closes the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    /// For the answer that is being waited for.
    pub(crate) timer: Timer,
    /// When it was last given back to its pool.
    pub(crate) idle_since: Instant,
}

impl Connection {
    /// Opens a connection and leaves its IO to a task of its own.
    pub(crate) async fn open(address: &Address, limit: Duration) -> io::Result<Box<Self>> {
        let stream = address.connect(limit).await?;
        let stream = TokioIo::new(Gather::new(stream));
        let handshake = Builder::new().max_buf_size(BUFFER).handshake(stream).await;
        let (sender, io) = handshake.map_err(io::Error::other)?;
        tokio::spawn(async move {
            // What goes wrong here is reported by the request it happens to.
            _ = io.await;
        });
        Ok(Box::new(Self { sender, timer: Timer::new(), idle_since: Instant::now() }))
    }

    /// The other side closed it, or it broke.
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
