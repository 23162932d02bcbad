//! The peer of a connection, as its requests carry it.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Extensions;

use tidegate_layer::layer::{Peer, PeerIsClient, TlsPeer};
use tidegate_rules::request::facts::ListenerName;

/// The peer's address: a client, or the proxy that it connected through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionPeer {
    pub(crate) address: SocketAddr,
    /// Whether the peer counts as the client even if it is a trusted proxy. Its forwarded fields are then ignored.
    pub(crate) is_client: bool,
    /// Whether the PROXY protocol reports that the client's connection to the proxy used TLS.
    pub(crate) over_tls: bool,
}

impl ConnectionPeer {
    /// Returns what TLS reports about the client: of the own connection, or without names of the connection to a proxy.
    pub(super) fn tls(self, own: Option<&Arc<TlsPeer>>) -> Option<Arc<TlsPeer>> {
        own.cloned().or_else(|| self.over_tls.then(Arc::default))
    }

    /// Inserts the peer and the name of its listener into the extensions of a request.
    pub(super) fn insert_into(self, extensions: &mut Extensions, listener: Option<&ListenerName>) {
        extensions.insert(Peer(self.address.ip()));
        if let Some(name) = listener {
            extensions.insert(name.clone());
        }
        if self.is_client {
            extensions.insert(PeerIsClient);
        }
    }
}

impl From<SocketAddr> for ConnectionPeer {
    fn from(address: SocketAddr) -> Self {
        Self { address, is_client: false, over_tls: false }
    }
}
