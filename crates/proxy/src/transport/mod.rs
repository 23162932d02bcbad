//! The byte streams of connections, as one type.
//!
//! In addition to `AsyncRead` and `AsyncWrite`, all streams can check for data or the end without reading
//! (`Transport::poll_readable`, `Transport::has_nothing_to_read`), and can signal an error to the peer
//! (`Transport::reset_on_drop`).

pub mod tls;

mod body_data;
mod relay;
mod tcp;
#[cfg(test)]
mod tests;
mod tls_stream;

use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

pub use self::body_data::{BodyData, poll_body_data};
pub(crate) use self::relay::Relay;
pub use self::relay::{MAX_PIPES, disable_pipes};
pub(crate) use self::tls_stream::Tls;

/// A connection's byte stream.
#[derive(Debug)]
pub enum Transport {
    /// A plaintext TCP connection.
    Tcp(TcpStream),
    /// A connection of a Unix socket.
    Unix(UnixStream),
    /// A TLS connection over TCP.
    Tls(Tls),
}

impl Transport {
    /// Becomes ready when there is data or the end to read. Over TLS it may be only a protocol message; then the next
    /// read waits.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
            Self::Tls(stream) => stream.poll_readable(cx),
        }
    }

    /// Returns `true` if there is neither data nor the end to read. Asks the kernel, or with `use_runtime_state` the
    /// runtime, which avoids a system call but is only as recent as its last poll.
    pub(crate) fn has_nothing_to_read(&mut self, use_runtime_state: bool) -> bool {
        let peeked = match self {
            _ if !use_runtime_state => peek(&*self),
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || peek(&*stream)),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || peek(&*stream)),
            Self::Tls(stream) => stream.tcp().try_io(Interest::READABLE, || peek(stream.tcp())),
        };
        match self {
            Self::Tcp(_) | Self::Unix(_) => peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
            Self::Tls(stream) => stream.has_nothing_to_read(peeked),
        }
    }

    /// Returns `true` if the peer has closed, to the knowledge of the runtime, even if unread data precedes the end.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Tcp(stream) => is_read_closed(stream.ready(Interest::READABLE)),
            Self::Unix(stream) => is_read_closed(stream.ready(Interest::READABLE)),
            Self::Tls(stream) => is_read_closed(stream.tcp().ready(Interest::READABLE)),
        }
    }

    /// Returns the socket of a plaintext TCP connection, whose bytes a [`Relay`] can move.
    pub(crate) fn relayable(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Unix(_) | Self::Tls(_) => None,
        }
    }

    /// Makes the peer see an error instead of the end when this is dropped. Has no effect on Unix sockets, which have
    /// no reset.
    pub(crate) fn reset_on_drop(&mut self) {
        if let Self::Tls(stream) = self {
            stream.skip_close_notify();
        }
        // If the socket is closed already, it needs no reset.
        _ = SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.tcp().as_fd(),
        }
    }
}

fn is_read_closed(ready: impl Future<Output = io::Result<Ready>>) -> bool {
    let polled = pin!(ready).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}

/// Checks for data or the end without reading. Returns an error if there is neither.
fn peek(socket: &impl AsFd) -> io::Result<usize> {
    SockRef::from(socket).peek(&mut [MaybeUninit::uninit()])
}

/// Ignores the failure to set a socket option that is an optimization: sandboxes and older systems lack some options.
pub fn optional(option: &'static str, set: io::Result<()>) {
    if let Err(error) = set {
        tracing::debug!(option, %error, "socket option is not available");
    }
}

impl From<TcpStream> for Transport {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for Transport {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

/// Calls a function of the inner stream.
macro_rules! each {
    ($transport:expr, $call:ident($($argument:expr),*)) => {
        match $transport.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$call($($argument),*),
            Self::Unix(stream) => Pin::new(stream).$call($($argument),*),
            Self::Tls(stream) => Pin::new(stream).$call($($argument),*),
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => tcp::poll_read(stream, cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

/// Written data may stay in a buffer until it is flushed.
impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => tcp::poll_write(stream, cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, poll_write_vectored(cx, slices))
    }

    /// Returns `true`: all streams accept several slices at once.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, poll_shutdown(cx))
    }
}
