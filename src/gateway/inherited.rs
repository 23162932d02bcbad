//! Listening sockets that somebody else opened: systemd, or the gateway that this one succeeds.
//!
//! They are found by their addresses. A socket that is inherited stays open, with all connections that wait in it, when
//! whoever opened it ends: no client is refused meanwhile.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use socket2::Socket;

/// Sockets, until an entry of the rule file takes them.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<(Giver, Socket)>);

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
    /// A descriptor that is no TCP socket.
    pub(crate) fn from_systemd() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let socket = passed.take_tcp_listener(index)?.map(Socket::from);
            sockets.extend(socket.map(|socket| (Giver::Systemd, socket)));
        }
        Ok(Self(sockets))
    }

    /// With what a predecessor handed over. Of an address of both, the predecessor's are enough: they are the same.
    pub(crate) fn and_of_predecessor(mut self, sockets: Vec<Socket>) -> Self {
        self.0.retain(|(_, own)| !sockets.iter().any(|socket| address(socket) == address(own)));
        self.0.extend(sockets.into_iter().map(|socket| (Giver::Predecessor, socket)));
        self
    }

    /// Those that listen on `address`.
    pub(super) fn take(&mut self, wanted: SocketAddr) -> Vec<Socket> {
        let taken = self.0.extract_if(.., |(_, socket)| address(socket) == Some(wanted));
        taken.map(|(_, socket)| socket).collect()
    }

    /// A socket of systemd's that nobody took: it would accept connections that nobody serves. A predecessor's is closed
    /// when it has ended, as after a change of the rule file.
    pub(super) fn unclaimed(&self) -> Option<SocketAddr> {
        self.0.iter().filter(|(giver, _)| *giver == Giver::Systemd).find_map(|(_, socket)| address(socket))
    }
}

fn address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}
