//! A connection of TLS, of a client of ours or to an upstream.

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

use crate::facts::TlsPeer;

/// A connection whose handshake is over. It is boxed, as every idle connection holds one, and most are none of TLS.
/// On drop, the other side is told of the end as far as the socket takes it (`close_notify`).
#[derive(Debug)]
pub(crate) struct Tls(Box<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TlsStream<TcpStream>,
    /// What is known of the other side, where that is a client.
    peer: Option<Arc<TlsPeer>>,
    skips_close_notify: bool,
}

impl Tls {
    pub(crate) fn new(stream: impl Into<TlsStream<TcpStream>>) -> Self {
        Self(Box::new(Inner { stream: stream.into(), peer: None, skips_close_notify: false }))
    }

    /// A connection of this client.
    pub(crate) fn with_client(stream: impl Into<TlsStream<TcpStream>>, peer: Arc<TlsPeer>) -> Self {
        Self(Box::new(Inner { stream: stream.into(), peer: Some(peer), skips_close_notify: false }))
    }

    /// What is known of a client.
    pub(crate) fn peer(&self) -> Option<&Arc<TlsPeer>> {
        self.0.peer.as_ref()
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        self.0.stream.get_ref().0
    }

    /// What the handshake found out: the protocol, the certificates of the other side.
    pub(crate) fn state(&self) -> &CommonState {
        self.0.stream.get_ref().1
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was decrypted and not read yet is nowhere in the socket; after the other side's end nothing comes any more.
        if self.state().wants_read() { self.tcp().poll_read_ready(cx) } else { Poll::Ready(Ok(())) }
    }

    /// What came may be a message of TLS itself, as session tickets are, which come after the handshake.
    pub(super) fn has_nothing_to_read(&mut self, peeked: io::Result<usize>) -> bool {
        match peeked {
            _ if !self.state().wants_read() => false,
            Ok(1..) => self.decrypt_pending().is_ok() && self.state().wants_read(),
            peeked => peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
        }
    }

    /// Decrypts what has come, also where the runtime was not told of it yet.
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

    /// The end is to look like a failure: nothing is said on drop.
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
        // As much as the socket has room for: nobody waits for the end of a connection that is over.
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
        // Not by the stream's own `poll_read`: it reads on until the buffer is full, and keeps an error that it meets
        // for the next call, which would not come, as nothing tells of it.
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
