//! Properties of the peer of a request, from the request's extensions.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::TlsPeer;

/// The peer address of a request, in the request's extensions. Without a `Peer`, the layer reads axum's
/// `ConnectInfo<SocketAddr>` with the feature `axum`, and tonic's `TcpConnectInfo` with the feature `tonic`.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// In the extensions of a request: the peer counts as the client, even if it is a trusted proxy.
#[derive(Clone, Copy, Debug)]
pub struct PeerIsClient;

/// Marks a request, in its extensions, that came over TLS. Contains the identity of the client certificate. A service
/// behind its own TLS server inserts it for limits that identify clients by certificate.
#[derive(Clone, Debug)]
pub struct OverTls(pub Arc<TlsPeer>);

/// Returns the TLS peer, if the request came over TLS.
pub(super) fn tls(extensions: &Extensions) -> Option<&TlsPeer> {
    extensions.get::<OverTls>().map(|tls| &*tls.0)
}

/// Logs once that a limit needs the client address and that requests have no peer address.
#[derive(Debug, Default)]
pub(super) struct MissingPeerWarning {
    is_logged: AtomicBool,
}

/// Returns the peer address that the server, axum or tonic has inserted.
pub(super) fn address(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>().map(|peer| peer.0);
    peer.or_else(|| connect_info(extensions)).or_else(|| tcp_connect_info(extensions))
}

#[cfg(feature = "tonic")]
fn tcp_connect_info(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<tonic::transport::server::TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
}

#[cfg(not(feature = "tonic"))]
fn tcp_connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}

/// Returns `true` if the peer counts as the client, so that forwarding fields must be ignored.
pub(super) fn is_client(extensions: &Extensions) -> bool {
    extensions.get::<PeerIsClient>().is_some()
}

#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<IpAddr> {
    use std::net::SocketAddr;

    use axum::extract::ConnectInfo;

    extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}

impl MissingPeerWarning {
    /// Warns if one of the limits needs the client address. Called for requests without a peer address.
    pub(super) fn log_once(&self, limits: &[Limit]) {
        let Some(limit) = limits.iter().find(|limit| limit.reads_address()) else { return };
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit = limit.name,
                "limit needs the client address, but the request has no peer address: serve with \
                 `into_make_service_with_connect_info::<SocketAddr>()`, or insert a `tidegate_layer::Peer` into its \
                 extensions"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged_by;
    use tidegate_config::Config;

    #[test]
    fn missing_peer_address_is_logged_once() {
        let rules = |client: &str| {
            let limits = format!("[{{ name: per-client, mode: PER_CLIENT, client: {client}, rate: 1, interval: 1s }}]");
            let text = format!("routes: [{{ name: all, match: {{}}, limits: {limits} }}]");
            Config::parse(&text).expect("rules").rules
        };
        let missing_peer_warning = MissingPeerWarning::default();
        let log = logged_by(|| {
            for client in ["host", "ip", "'header:x-key'", "[path, ip]"] {
                rules(client).routes.iter().for_each(|route| missing_peer_warning.log_once(&route.limits));
            }
        });
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("per-client") && log.contains("into_make_service_with_connect_info"), "{log}");
    }
}
