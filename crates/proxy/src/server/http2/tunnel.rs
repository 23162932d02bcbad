//! Tunnels for other protocols (extended CONNECT, RFC 8441). The service sees the request as in HTTP/1: a GET with an
//! upgrade offer, and without a body until the upstream has switched protocols.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use h2::ext::Protocol;
use http::{HeaderValue, Method, Request};

use tidegate_rules::route::upgrade::Offer;

/// Whether an upstream has switched to the protocol of a stream. Until then nothing is read from the client.
#[derive(Clone, Debug, Default)]
pub(super) struct TunnelState(Arc<AtomicBool>);

impl TunnelState {
    /// Rewrites a request for a tunnel. Returns `None` for any other request.
    pub(super) fn from_request<B>(request: &mut Request<B>) -> Option<Self> {
        let protocol = request.extensions_mut().remove::<Protocol>()?;
        // A protocol that is not a valid field value matches no upstream protocol.
        let offer = HeaderValue::from_str(protocol.as_str()).unwrap_or(HeaderValue::from_static(""));
        *request.method_mut() = Method::GET;
        request.extensions_mut().insert(Offer(offer));
        Some(Self::default())
    }

    pub(super) fn open(&self) {
        self.0.store(true, Relaxed);
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.load(Relaxed)
    }
}
