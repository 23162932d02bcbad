//! Protocol upgrades (`Upgrade`, RFC 9110 section 7.8): what a client offers, what a route allows, and the limits of an
//! upgraded connection.

use std::time::Duration;

use http::{HeaderValue, Request, Version};
use serde::Serialize;

use crate::json;

/// The protocols that a route allows, and the limits of upgraded connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrades {
    /// The allowed protocols, as they are sent to upstreams.
    pub protocols: Vec<HeaderValue>,
    /// The limits of an upgraded connection.
    pub limits: TunnelLimits,
}

/// Limits on the duration and the traffic of an upgraded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TunnelLimits {
    /// The longest time without a byte in either direction.
    #[serde(rename = "idle_timeout_ms", serialize_with = "json::millis")]
    pub idle_timeout: Duration,
    /// The longest time in total.
    #[serde(rename = "max_time_ms", serialize_with = "json::optional_millis")]
    pub max_time: Option<Duration>,
    /// The maximum number of bytes, both directions together.
    pub max_bytes: Option<u64>,
}

/// The `Upgrade` field of a client, its preferred protocol first. Stored in the request's extensions.
#[derive(Clone, Debug)]
pub struct Offer(pub HeaderValue);

/// The protocol that the gateway offers to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The value of `Upgrade`.
    pub protocol: HeaderValue,
    /// The limits of the tunnel.
    pub limits: TunnelLimits,
}

/// Returns `true` for an extended CONNECT (RFC 8441). Such a request cannot be forwarded without an upgrade.
pub fn is_tunnel<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2 && request.extensions().get::<Offer>().is_some()
}

// === impl Upgrades ===

impl Upgrades {
    /// The default `idle_timeout`: many times the ping interval of common clients and servers.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

    /// Returns the first offered protocol that the route allows. Ignores case.
    pub fn choose(&self, Offer(offer): &Offer) -> Option<Upgrade> {
        let mut offered = offer.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let chosen = offered
            .find_map(|name| self.protocols.iter().find(|protocol| protocol.as_bytes().eq_ignore_ascii_case(name)));
        chosen.map(|protocol| Upgrade { protocol: protocol.clone(), limits: self.limits })
    }
}

/// Allows WebSocket. No rate limit counts its bytes.
impl Default for Upgrades {
    fn default() -> Self {
        let limits = TunnelLimits { idle_timeout: Self::DEFAULT_IDLE_TIMEOUT, max_time: None, max_bytes: None };
        Self { protocols: vec![HeaderValue::from_static("websocket")], limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_allowed_protocol_of_the_offer_is_chosen() {
        let protocols = ["websocket", "SPDY/3.1"].map(HeaderValue::from_static).to_vec();
        let upgrades = Upgrades { protocols, ..Upgrades::default() };
        let chosen = |offer: &'static str| {
            let chosen = upgrades.choose(&Offer(HeaderValue::from_static(offer)));
            chosen.map(|upgrade| upgrade.protocol)
        };
        for (offer, protocol) in [
            ("WebSocket", Some("websocket")),
            ("h2c, spdy/3.1 ,websocket", Some("SPDY/3.1")),
            ("h2c,,\twebsocket", Some("websocket")),
            ("h2c", None),
            ("spdy", None),
            ("web socket", None),
            ("websocket/13", None),
            ("", None),
        ] {
            assert_eq!(chosen(offer), protocol.map(HeaderValue::from_static), "{offer:?}");
        }
    }
}
