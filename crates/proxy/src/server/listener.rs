//! A listening TCP or Unix socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::socket_options;
use crate::transport::Transport;

/// The address of clients of a Unix socket: they run on this machine, so they count as loopback clients.
const UNIX_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A listening socket for clients or operators.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Listens on this socket. Must be called within a runtime.
    ///
    /// # Errors
    /// The socket cannot be registered with the runtime.
    pub fn new(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let is_unix = socket.local_addr()?.domain() == Domain::UNIX;
        let descriptor = OwnedFd::from(socket);
        match is_unix {
            true => UnixListener::from_std(descriptor.into()).map(Self::Unix),
            false => TcpListener::from_std(descriptor.into()).map(Self::Tcp),
        }
    }

    /// Sets the socket options that accepted connections inherit.
    pub(super) fn configure(&self, body_timeout: Duration) {
        if let Self::Tcp(listener) = self {
            socket_options::configure(listener, body_timeout);
        }
    }

    /// Returns the next connection.
    pub async fn accept(&self) -> io::Result<(Transport, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| (stream.into(), peer)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| (stream.into(), UNIX_PEER)),
        }
    }

    /// Returns a connection from the kernel's accept queue. Asks the kernel, because the runtime's state is only as
    /// recent as its last poll.
    pub(super) fn accept_queued(&self) -> io::Result<(Transport, SocketAddr)> {
        let socket = match self {
            Self::Tcp(listener) => SockRef::from(listener),
            Self::Unix(listener) => SockRef::from(listener),
        };
        let (stream, peer) = socket.accept()?;
        stream.set_nonblocking(true)?;
        let stream = OwnedFd::from(stream);
        match self {
            Self::Tcp(_) => Ok((TcpStream::from_std(stream.into())?.into(), peer.as_socket().unwrap_or(UNIX_PEER))),
            Self::Unix(_) => Ok((UnixStream::from_std(stream.into())?.into(), UNIX_PEER)),
        }
    }
}
