//! The operators' listener, which answers also when file descriptors have run out: that is when they ask.

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

use crate::server;
use crate::transport::Transport;

/// Operators that are served at a time although nothing is left for others.
const SPARES: usize = 8;

/// How long to wait when nothing helps.
const BACK_OFF: Duration = Duration::from_millis(75);

/// A listener with a reserve.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: server::Listener,
    reserve: Arc<Reserve>,
    /// Whether nobody is accepted any more.
    closing: watch::Receiver<bool>,
}

/// Descriptors that are kept to be given up.
#[derive(Debug)]
struct Reserve {
    /// What they are copies of.
    origin: Socket,
    spares: Mutex<Vec<Socket>>,
}

/// A connection, whose descriptor goes back to the reserve.
#[derive(Debug)]
pub(crate) struct Connection {
    /// There until it is dropped.
    stream: Option<Transport>,
    reserve: Arc<Reserve>,
}

// === impl Listener ===

impl Listener {
    /// Puts the reserve aside. Called within a runtime.
    ///
    /// # Errors
    /// A listener that cannot be used; there are no descriptors even now.
    pub(crate) fn new(socket: Socket, closing: watch::Receiver<bool>) -> io::Result<Self> {
        let origin = socket.try_clone()?;
        let listener = server::Listener::new(socket)?;
        let reserve = Arc::new(Reserve { origin, spares: Mutex::new(Vec::with_capacity(SPARES)) });
        reserve.fill();
        Ok(Self { listener, reserve, closing })
    }

    /// Tells when nobody is accepted any more.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.clone()
    }

    /// Accepts the next connection. Waits forever once the listener is closed.
    pub(super) async fn accept(&mut self) -> Connection {
        loop {
            let accepted = tokio::select! {
                biased;
                // What waits in the queue is left to whoever else listens on the same socket.
                () = is_closed(&mut self.closing) => pending().await,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    return Connection { stream: Some(stream), reserve: Arc::clone(&self.reserve) };
                }
                // Whatever is wrong, the next attempt has a descriptor that this one had not.
                Err(_) if self.reserve.give_up_one() => {}
                Err(_) => {
                    sleep(BACK_OFF).await;
                    self.reserve.fill();
                }
            }
        }
    }
}

/// Returns once it is closed.
async fn is_closed(closing: &mut watch::Receiver<bool>) {
    if closing.wait_for(|closed| *closed).await.is_err() {
        pending::<()>().await; // nobody is left to close it
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

    fn give_up_one(&self) -> bool {
        self.spares.lock().pop().is_some()
    }
}

// === impl Connection ===

impl Connection {
    fn poll<T>(&mut self, poll: impl FnOnce(Pin<&mut Transport>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut self.stream {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It is closed first, so that there is one to be had.
        self.stream = None;
        self.reserve.fill();
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Connection {
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
