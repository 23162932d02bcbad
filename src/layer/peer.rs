//! The address that a request comes from, if the server told.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use crate::facts::TlsPeer;
use crate::rule::Limit;

/// The other end of the connection, in a request's extensions. With the feature `axum`, its `ConnectInfo` serves as well; with
/// the feature `tonic`, its `TcpConnectInfo`.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The peer counts as the client, even if it is a trusted proxy; in a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerIsClient;

/// The request came over TLS, whose other end is this; in a request's extensions.
#[derive(Clone, Debug)]
pub struct OverTls(pub Arc<TlsPeer>);

/// The client of a request, for limits with `client: extension`; in the request's extensions. A service puts it there once it
/// knows its client: an account, a tenant, a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey(pub String);

/// Returns the client key that the service has put there.
pub(super) fn client_key(extensions: &Extensions) -> Option<&str> {
    extensions.get::<ClientKey>().map(|key| key.0.as_str())
}

/// What TLS told, if the request came over it.
pub(super) fn tls(extensions: &Extensions) -> Option<&TlsPeer> {
    extensions.get::<OverTls>().map(|tls| &*tls.0)
}

/// Logs once that a limit needs an address that requests do not have.
#[derive(Debug, Default)]
pub(super) struct Hint {
    is_given: AtomicBool,
}

/// The peer that a server, axum or tonic has noted.
pub(super) fn of(extensions: &Extensions) -> Option<IpAddr> {
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

/// Whether the forwarded fields of a trusted peer are not to be trusted.
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

impl Hint {
    /// A request without a peer is subject to these limits.
    pub(super) fn give(&self, limits: &[Limit]) {
        let Some(limit) = limits.iter().find(|limit| limit.reads_address()) else { return };
        if !self.is_given.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit = limit.name,
                "a limit looks for the client's address, and the request has none: serve with \
                 `into_make_service_with_connect_info::<SocketAddr>()`, or put a `tidegate::layer::Peer` into its extensions"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::store::testing::logged_by;

    #[test]
    fn what_to_add_is_logged_once_and_only_where_a_limit_looks_for_an_address() {
        let rules = |client: &str| {
            let limits = format!("[{{ name: per-client, mode: PER_CLIENT, client: {client}, rate: 1, interval: 1s }}]");
            let text = format!("routes: [{{ name: all, match: {{}}, limits: {limits} }}]");
            Config::parse(&text).expect("rules").rules
        };
        let hint = Hint::default();
        let log = logged_by(|| {
            for client in ["host", "ip", "'header:x-key'", "[path, ip]"] {
                rules(client).routes.iter().for_each(|route| hint.give(&route.limits));
            }
        });
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("per-client") && log.contains("into_make_service_with_connect_info"), "{log}");
    }
}
