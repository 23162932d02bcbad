//! A client's socket, with the record of its activity.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::TcpStream;

use super::activity::Activity;
use crate::transport::Transport;
use tidegate_rules::request::facts::TlsPeer;

/// The socket and its activity record. An idle connection needs nothing else.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(super) stream: Transport,
    pub(super) activity: Arc<Activity>,
}

impl Socket {
    pub(crate) fn new(stream: Transport, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    /// Returns the protocol that ALPN selected, if any. Returns `None` for a plaintext connection.
    pub(crate) fn alpn_protocol(&self) -> Option<Option<&[u8]>> {
        match &self.stream {
            Transport::Tls(tls) => Some(tls.state().alpn_protocol()),
            Transport::Tcp(_) | Transport::Unix(_) => None,
        }
    }

    /// Returns what TLS reports about the client. Returns `None` for a plaintext connection.
    pub(crate) fn tls_peer(&self) -> Option<&Arc<TlsPeer>> {
        match &self.stream {
            Transport::Tls(tls) => tls.peer(),
            Transport::Tcp(_) | Transport::Unix(_) => None,
        }
    }

    /// Returns the socket, if a [`Relay`](crate::transport::Relay) can move bodies from and to it.
    pub(crate) fn relayable(&self) -> Option<&TcpStream> {
        self.stream.relayable()
    }

    /// Returns `Ready` when there is something to read, or the connection is closed.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.activity.needs_reset() {
            self.stream.reset_on_drop();
        }
    }
}
