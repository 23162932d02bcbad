//! Listening sockets that another process opened: systemd, or the gateway before this one.
//!
//! Entries of the rule file claim them by address. An inherited socket stays open when the other process ends, and
//! keeps the connections in its accept queue. Therefore no client is refused during a restart.

use std::io;

use listenfd::ListenFd;
use socket2::Socket;

use super::socket_file::ListeningSocket;
use tidegate_config::ListenAddress;

/// Inherited sockets that no entry of the rule file has claimed yet.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets(Vec<(SocketSource, ListeningSocket)>);

/// The process that opened a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketSource {
    Systemd,
    Predecessor,
}

// === impl InheritedSockets ===

impl InheritedSockets {
    /// Takes the sockets that systemd passes to a socket-activated service (`LISTEN_FDS`). Must be called before other
    /// threads exist, because it removes environment variables.
    ///
    /// # Errors
    /// A descriptor is not a stream socket.
    pub(crate) fn from_systemd() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let socket = match passed.take_unix_listener(index) {
                Ok(socket) => socket.map(Socket::from),
                Err(_) => passed.take_tcp_listener(index)?.map(Socket::from),
            };
            sockets.extend(socket.map(|socket| (SocketSource::Systemd, ListeningSocket { socket, file: None })));
        }
        Ok(Self(sockets))
    }

    /// Adds the sockets of a predecessor. If systemd passed a socket for the same address, the predecessor's socket is
    /// a duplicate of it, so one is enough.
    pub(crate) fn with_predecessor(mut self, sockets: Vec<ListeningSocket>) -> Self {
        let same_address =
            |one: &ListeningSocket, other: &ListeningSocket| local_address(&one.socket) == local_address(&other.socket);
        self.0.retain(|(_, own)| !sockets.iter().any(|other| same_address(other, own)));
        self.0.extend(sockets.into_iter().map(|listening| (SocketSource::Predecessor, listening)));
        self
    }

    /// Returns `true` if one of the sockets listens on this port, at any address.
    pub(super) fn has_port(&self, port: u16) -> bool {
        let port_of = |socket: &Socket| local_address(socket)?.tcp().map(|address| address.port());
        self.0.iter().any(|(_, listening)| port_of(&listening.socket) == Some(port))
    }

    /// Takes the sockets that listen on `address`.
    pub(super) fn take(&mut self, address: &ListenAddress) -> Vec<ListeningSocket> {
        let taken = self.0.extract_if(.., |(_, listening)| local_address(&listening.socket).as_ref() == Some(address));
        taken.map(|(_, listening)| listening).collect()
    }

    /// Returns the address of a socket from systemd that no entry claimed: clients could connect to it but would get no
    /// response. Unclaimed sockets of a predecessor are normal after a change of the rule file.
    pub(super) fn unclaimed(&self) -> Option<ListenAddress> {
        let from_systemd = self.0.iter().find(|(source, _)| *source == SocketSource::Systemd);
        from_systemd.and_then(|(_, listening)| local_address(&listening.socket))
    }
}

/// Returns the address that a socket listens on. Returns `None` if an entry of the rule file cannot have such an
/// address.
pub(super) fn local_address(socket: &Socket) -> Option<ListenAddress> {
    let address = socket.local_addr().ok()?;
    let path = || address.as_pathname().map(|path| ListenAddress::Unix(path.to_owned()));
    address.as_socket().map(ListenAddress::Tcp).or_else(path)
}
