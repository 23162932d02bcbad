//! Where a request comes from, as far as somebody has noted it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use crate::rule::Limit;

/// The other end of the connection, in a request's extensions. With the feature `axum`, its `ConnectInfo` serves as well.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Says once that limits look for an address which requests do not have.
#[derive(Debug, Default)]
pub(super) struct Hint {
    is_given: AtomicBool,
}

/// The peer that a server, or axum, has noted.
pub(super) fn of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Peer>().map(|peer| peer.0).or_else(|| connect_info(extensions))
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
