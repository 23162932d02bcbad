//! The byte streams that a connection can be made of, behind one type.
//!
//! Whoever reads and writes need not know which it is. Two things are asked of all of them that `AsyncRead` does not
//! tell: whether something has come, or the end, without a buffer to read it into ([`Transport::poll_readable`],
//! [`Transport::is_quiet`]); and that the other side sees a broken stream as such ([`Transport::reset_on_drop`]).

#![allow(dead_code, reason = "listeners and upstreams are about to speak TLS")]

#[cfg(test)]
mod tests;
mod tls;

use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

pub(crate) use self::tls::Tls;

/// A connection's byte stream.
#[derive(Debug)]
pub(crate) enum Transport {
    Tcp(TcpStream),
    Tls(Tls),
}

impl Transport {
    /// Ready when there is something to read, or the connection is over. Over TLS it may turn out that what came was not
    /// for us to read; then the next read waits.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Tls(stream) => stream.poll_readable(cx),
        }
    }

    /// Whether nothing has come that nobody asked for, nor the end. The system is asked; or the runtime alone, which costs
    /// no system call and knows what it was told when it last waited for events.
    pub(crate) fn is_quiet(&mut self, is_runtime_enough: bool) -> bool {
        let socket = self.tcp();
        let came = match is_runtime_enough {
            true => socket.try_io(Interest::READABLE, || peek(socket)),
            false => peek(socket),
        };
        match self {
            Self::Tcp(_) => came.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
            Self::Tls(stream) => stream.is_quiet(came),
        }
    }

    /// Whether the other side has closed, as far as the kernel has told: also where bytes that nobody wants yet hide the end.
    pub(crate) fn is_closed(&self) -> bool {
        let ready = pin!(self.tcp().ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// When this is dropped, the other side sees an error instead of the end.
    pub(crate) fn reset_on_drop(&mut self) {
        // A socket that is gone already needs no reset.
        _ = SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
        if let Self::Tls(stream) = self {
            stream.end_without_notice();
        }
    }

    /// The TCP connection below.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.tcp(),
        }
    }
}

/// Looks for what has come, be it the end; an error if that is nothing.
fn peek(socket: &TcpStream) -> io::Result<usize> {
    SockRef::from(socket).peek(&mut [MaybeUninit::uninit()])
}

impl From<TcpStream> for Transport {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

/// Calls this function of whichever stream it is.
macro_rules! each {
    ($transport:expr, $call:ident($($argument:expr),*)) => {
        match $transport.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$call($($argument),*),
            Self::Tls(stream) => Pin::new(stream).$call($($argument),*),
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, poll_read(cx, buffer))
    }
}

/// What was written may wait in a buffer until it is flushed.
impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, poll_write_vectored(cx, slices))
    }

    /// Every one of them takes several slices at once.
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
