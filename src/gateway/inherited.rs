//! Listening sockets that somebody else opened: systemd, or the gateway that this one succeeds.
//!
//! They are found by their addresses. A socket that is inherited stays open, with all connections that wait in it, when
//! whoever opened it ends: no client is refused meanwhile.

use std::io;

use listenfd::ListenFd;
use socket2::Socket;

use super::socket_file::Listening;
use crate::config::ListenAddress;

/// Sockets, until an entry of the rule file takes them.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<(Giver, Listening)>);

/// Who opened a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Giver {
    Systemd,
    Predecessor,
}

// === impl Inherited ===

impl Inherited {
    /// What systemd passes to a service that its sockets start (`LISTEN_FDS`). Called before there are threads, since what
    /// told of the sockets is taken out of the environment.
    ///
    /// # Errors
    /// A descriptor that is no socket of a stream.
    pub(crate) fn from_systemd() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let socket = match passed.take_unix_listener(index) {
                Ok(socket) => socket.map(Socket::from),
                Err(_) => passed.take_tcp_listener(index)?.map(Socket::from),
            };
            sockets.extend(socket.map(|socket| (Giver::Systemd, Listening { socket, file: None })));
        }
        Ok(Self(sockets))
    }

    /// With what a predecessor handed over. Of an address of both, the predecessor's are enough: they are the same.
    pub(crate) fn and_of_predecessor(mut self, sockets: Vec<Listening>) -> Self {
        self.0.retain(|(_, own)| !sockets.iter().any(|other| address(&other.socket) == address(&own.socket)));
        self.0.extend(sockets.into_iter().map(|listening| (Giver::Predecessor, listening)));
        self
    }

    /// Whether any of them listens on this port, at whatever address.
    pub(super) fn has_port(&self, port: u16) -> bool {
        let port_of = |socket: &Socket| address(socket)?.tcp().map(|address| address.port());
        self.0.iter().any(|(_, listening)| port_of(&listening.socket) == Some(port))
    }

    /// Those that listen on `address`.
    pub(super) fn take(&mut self, wanted: &ListenAddress) -> Vec<Listening> {
        let taken = self.0.extract_if(.., |(_, listening)| address(&listening.socket).as_ref() == Some(wanted));
        taken.map(|(_, listening)| listening).collect()
    }

    /// A socket of systemd's that nobody took: it would accept connections that nobody serves. A predecessor's is closed
    /// when it has ended, as after a change of the rule file.
    pub(super) fn unclaimed(&self) -> Option<ListenAddress> {
        let of_systemd = self.0.iter().find(|(giver, _)| *giver == Giver::Systemd);
        of_systemd.and_then(|(_, listening)| address(&listening.socket))
    }
}

/// Where a socket listens; nowhere if it has an address of no entry's kind.
pub(super) fn address(socket: &Socket) -> Option<ListenAddress> {
    let address = socket.local_addr().ok()?;
    let path = || address.as_pathname().map(|path| ListenAddress::Unix(path.to_owned()));
    address.as_socket().map(ListenAddress::Tcp).or_else(path)
}
