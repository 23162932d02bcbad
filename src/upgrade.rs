//! Protocols that a connection may be switched to (`Upgrade`, RFC 9110 section 7.8): what a client offers, what a route lets
//! pass, and within which bounds.

use std::time::Duration;

use http::{HeaderValue, Request, Version};

/// What a route lets its clients switch to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrades {
    /// The protocols, as they are written to upstreams.
    pub protocols: Vec<HeaderValue>,
    /// What holds for a connection that was switched.
    pub bounds: TunnelLimits,
}

/// How long a connection that was switched may last, and how much it may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// The longest without a byte in either direction.
    pub idle_timeout: Duration,
    /// The longest in all.
    pub max_time: Option<Duration>,
    /// The most bytes of both directions together.
    pub max_bytes: Option<u64>,
}

/// The protocols that a client offers to go on with, in the order of its liking; in a request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct Offer(pub(crate) HeaderValue);

/// The protocol that an upstream is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upgrade {
    pub(crate) protocol: HeaderValue,
    pub(crate) bounds: TunnelLimits,
}

/// Returns `true` if a request asks for a tunnel (extended CONNECT, RFC 8441): without one there is nothing to forward.
pub(crate) fn is_tunnel<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2 && request.extensions().get::<Offer>().is_some()
}

// === impl Upgrades ===

impl Upgrades {
    /// Time without a byte unless the rule file says otherwise: many times the pings of common clients and servers.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

    /// The first protocol of the offer that may pass.
    pub(crate) fn choose(&self, Offer(offer): &Offer) -> Option<Upgrade> {
        let mut offered = offer.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let chosen =
            offered.find_map(|name| self.protocols.iter().find(|one| one.as_bytes().eq_ignore_ascii_case(name)));
        chosen.map(|protocol| Upgrade { protocol: protocol.clone(), bounds: self.bounds })
    }
}

/// WebSocket: bytes that are neither requests nor limited, as those of any answer.
impl Default for Upgrades {
    fn default() -> Self {
        let bounds = TunnelLimits { idle_timeout: Self::DEFAULT_IDLE_TIMEOUT, max_time: None, max_bytes: None };
        Self { protocols: vec![HeaderValue::from_static("websocket")], bounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_protocol_of_the_offer_that_the_route_names_is_chosen_in_any_case() {
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
