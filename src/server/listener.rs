//! A listening socket, and who has connected to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::socket;
use crate::transport::Transport;

/// Whoever connects to a Unix socket is on this machine, and counts as connecting from its loopback address.
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What clients or operators connect to.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Accepts on this socket. Called within a runtime.
    ///
    /// # Errors
    /// A socket that cannot be used.
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let is_unix = socket.local_addr()?.domain() == Domain::UNIX;
        let descriptor = OwnedFd::from(socket);
        match is_unix {
            true => UnixListener::from_std(descriptor.into()).map(Self::Unix),
            false => TcpListener::from_std(descriptor.into()).map(Self::Tcp),
        }
    }

    /// Tells the kernel what clients' connections are to be like.
    pub(super) fn prepare(&self, body_timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => socket::prepare(listener, body_timeout),
            Self::Unix(_) => Ok(()),
        }
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<(Transport, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| (stream.into(), peer)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| (stream.into(), LOCAL)),
        }
    }

    /// A connection that waits in the system's queue. The system is asked: the runtime knows only what it was told when it last
    /// waited for events.
    pub(super) fn accept_now(&self) -> io::Result<(Transport, SocketAddr)> {
        let socket = match self {
            Self::Tcp(listener) => SockRef::from(listener),
            Self::Unix(listener) => SockRef::from(listener),
        };
        let (stream, peer) = socket.accept()?;
        stream.set_nonblocking(true)?;
        let stream = OwnedFd::from(stream);
        match self {
            Self::Tcp(_) => Ok((TcpStream::from_std(stream.into())?.into(), peer.as_socket().unwrap_or(LOCAL))),
            Self::Unix(_) => Ok((UnixStream::from_std(stream.into())?.into(), LOCAL)),
        }
    }
}
