//! The admin listener. It accepts connections even if the process has run out of file descriptors, because operators
//! need it then.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::sleep;

use tidegate_proxy::server::{self, Precedence};
use tidegate_proxy::transport::{Transport, optional};

/// The number of admin connections that the reserve allows when no other file descriptors are left.
const SPARES: usize = 8;

/// The size of the buffer for responses of each connection in the kernel, in bytes. Bounds the memory of viewers of the
/// dashboard that do not read.
const SEND_BUFFER: usize = 128 * 1024;

/// The pause after a failed accept without a reserve.
const BACK_OFF: Duration = Duration::from_millis(75);

/// A listener with a reserve of file descriptors.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: server::Listener,
    reserve: Arc<Reserve>,
    /// Becomes `true` when the listener is closed.
    closing: watch::Receiver<bool>,
}

/// File descriptors that are closed when none are left for new connections.
#[derive(Debug)]
struct Reserve {
    /// The socket that the spare descriptors duplicate.
    origin: Socket,
    spares: Mutex<Vec<Socket>>,
}

/// A connection that refills the reserve when it is dropped.
#[derive(Debug)]
pub(crate) struct AdminConnection {
    /// `None` only while the connection is dropped.
    stream: Option<Transport>,
    reserve: Arc<Reserve>,
}

// === impl Listener ===

impl Listener {
    /// Creates the listener and fills its reserve. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Fails if the socket cannot be used or no file descriptors are left.
    pub(crate) fn new(socket: Socket, closing: watch::Receiver<bool>) -> io::Result<Self> {
        // Accepted connections inherit the size.
        optional("SO_SNDBUF", socket.set_send_buffer_size(SEND_BUFFER));
        let origin = socket.try_clone()?;
        let listener = server::Listener::new(socket)?;
        let reserve = Arc::new(Reserve { origin, spares: Mutex::new(Vec::with_capacity(SPARES)) });
        reserve.fill();
        Ok(Self { listener, reserve, closing })
    }

    /// Returns a receiver that becomes `true` when the listener is closed.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.clone()
    }

    /// Accepts the next connection. Waits forever once the listener is closed.
    pub(super) async fn accept(&mut self) -> AdminConnection {
        let mut precedence = None;
        loop {
            let accepted = tokio::select! {
                biased;
                // Connections in the accept queue stay for the successor, which uses the same socket.
                () = is_closed(&mut self.closing) => {
                    drop(precedence.take());
                    pending().await
                }
                accepted = self.listener.accept() => accepted,
                // The connection for which the descriptor was released may be gone.
                () = sleep(BACK_OFF), if precedence.is_some() => {
                    precedence = None;
                    continue;
                }
            };
            if let Ok((stream, _)) = accepted {
                return AdminConnection { stream: Some(stream), reserve: Arc::clone(&self.reserve) };
            }
            // A worker must not take the descriptor that is released for the next attempt.
            precedence.get_or_insert_with(Precedence::take);
            if !self.reserve.release_one() {
                sleep(BACK_OFF).await;
                self.reserve.fill();
            }
        }
    }
}

/// Returns when the listener is closed.
async fn is_closed(closing: &mut watch::Receiver<bool>) {
    if closing.wait_for(|closed| *closed).await.is_err() {
        pending::<()>().await; // the sender is gone, so it is never closed
    }
}

// === impl Reserve ===

impl Reserve {
    fn fill(&self) {
        let mut spares = self.spares.lock();
        while spares.len() < SPARES {
            let Ok(spare) = self.origin.try_clone() else { return };
            spares.push(spare);
        }
    }

    fn release_one(&self) -> bool {
        self.spares.lock().pop().is_some()
    }
}

// === impl AdminConnection ===

impl AdminConnection {
    fn poll<T>(&mut self, poll: impl FnOnce(Pin<&mut Transport>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut self.stream {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for AdminConnection {
    fn drop(&mut self) {
        // Close the connection first: its descriptor is needed for the reserve, and not for a worker's next connection.
        let _precedence = Precedence::take();
        self.stream = None;
        self.reserve.fill();
    }
}

impl AsyncRead for AdminConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for AdminConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(cx))
    }
}
