//! A TLS connection, from a client or to an upstream.

use std::io::{self, IoSlice};
use std::ops::DerefMut;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{CommonState, ConnectionCommon, SideData};
use socket2::SockRef;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use tidegate_rules::request::facts::TlsPeer;

/// A TLS connection after its handshake. It is boxed to keep [`Transport`](super::Transport) small, since most
/// connections do not use TLS. On drop it sends `close_notify`, if the socket accepts it immediately.
#[derive(Debug)]
pub struct Tls(Box<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TlsStream<TcpStream>,
    /// The TLS data of the peer, if it is a client.
    peer: Option<Arc<TlsPeer>>,
    skips_close_notify: bool,
}

impl Tls {
    pub(crate) fn new(stream: impl Into<TlsStream<TcpStream>>) -> Self {
        Self(Box::new(Inner { stream: stream.into(), peer: None, skips_close_notify: false }))
    }

    /// Creates the connection of a client.
    pub(crate) fn with_client(stream: impl Into<TlsStream<TcpStream>>, peer: Arc<TlsPeer>) -> Self {
        Self(Box::new(Inner { stream: stream.into(), peer: Some(peer), skips_close_notify: false }))
    }

    /// Returns the TLS data of the peer, if it is a client.
    pub(crate) fn peer(&self) -> Option<&Arc<TlsPeer>> {
        self.0.peer.as_ref()
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        self.0.stream.get_ref().0
    }

    /// Returns the state of the handshake: the protocol and the peer's certificates.
    pub(crate) fn state(&self) -> &CommonState {
        self.0.stream.get_ref().1
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Decrypted data that was not read yet is no longer in the socket, and no data follows the end.
        if self.state().wants_read() { self.tcp().poll_read_ready(cx) } else { Poll::Ready(Ok(())) }
    }

    /// As [`Transport::has_nothing_to_read`](super::Transport::has_nothing_to_read); ignores messages of TLS itself,
    /// such as session tickets.
    pub(super) fn has_nothing_to_read(&mut self, peeked: io::Result<usize>) -> bool {
        match peeked {
            _ if !self.state().wants_read() => false,
            Ok(1..) => self.decrypt_pending().is_ok() && self.state().wants_read(),
            peeked => peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
        }
    }

    /// Decrypts received data, even if the runtime has not polled the socket since.
    fn decrypt_pending(&mut self) -> io::Result<()> {
        match &mut self.0.stream {
            TlsStream::Client(stream) => {
                let (socket, session) = stream.get_mut();
                decrypt_pending(socket, session)
            }
            TlsStream::Server(stream) => {
                let (socket, session) = stream.get_mut();
                decrypt_pending(socket, session)
            }
        }
    }

    /// Sends no `close_notify` on drop, so that the end looks like a failure.
    pub(super) fn skip_close_notify(&mut self) {
        self.0.skips_close_notify = true;
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(&mut self.get_mut().0.stream)
    }
}

fn decrypt_pending<S: SideData>(
    socket: &TcpStream,
    session: &mut impl DerefMut<Target = ConnectionCommon<S>>,
) -> io::Result<()> {
    while session.wants_read() {
        match session.read_tls(&mut &*SockRef::from(socket)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => _ = session.process_new_packets().map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Drop for Tls {
    fn drop(&mut self) {
        if self.0.skips_close_notify {
            return;
        }
        // Writes only as much as the socket accepts immediately: a drop must not wait.
        _ = match &mut self.0.stream {
            TlsStream::Client(stream) => {
                let (socket, session) = stream.get_mut();
                session.send_close_notify();
                session.write_tls(&mut &*SockRef::from(&*socket))
            }
            TlsStream::Server(stream) => {
                let (socket, session) = stream.get_mut();
                session.send_close_notify();
                session.write_tls(&mut &*SockRef::from(&*socket))
            }
        };
    }
}

impl AsyncRead for Tls {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Does not use the stream's own `poll_read`: it reads until the buffer is full, and defers an error to the next
        // call, which might never happen.
        let data = ready!(self.as_mut().stream().poll_fill_buf(cx))?;
        let count = data.len().min(buffer.remaining());
        buffer.put_slice(&data[..count]);
        self.stream().consume(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tls {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
