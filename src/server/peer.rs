//! The other end of a connection, for the requests on it.

use std::net::SocketAddr;

use http::Extensions;

use crate::layer::{Peer, PeerIsClient};

/// The address at the other end, be it a client or the proxy that it came through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionPeer {
    pub(crate) address: SocketAddr,
    /// Whether it counts as the client even if it is a trusted proxy: its forwarded fields are not trusted.
    pub(crate) is_client: bool,
}

impl ConnectionPeer {
    /// Leaves it in the extensions of a request.
    pub(super) fn note(self, extensions: &mut Extensions) {
        extensions.insert(Peer(self.address.ip()));
        if self.is_client {
            extensions.insert(PeerIsClient);
        }
    }
}

impl From<SocketAddr> for ConnectionPeer {
    fn from(address: SocketAddr) -> Self {
        Self { address, is_client: false }
    }
}
