//! The address of a client, behind proxies too.
//!
//! It is the peer of the connection unless that peer is a trusted proxy; then `X-Forwarded-For` is walked from the right,
//! past trusted proxies, to the first address that is none. Garbage ends the walk where it stands: what is left of it may
//! be anybody's invention.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderName;
use ipnet::{IpNet, Ipv6Net};

use crate::facts::Facts;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// How addresses are read: whom to believe, and how much of an IPv6 address is one client.
#[derive(Clone, Debug)]
pub struct AddressRules {
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Bits of an IPv6 address that tell clients apart, 32 to 128; providers hand out at least a /64.
    pub ipv6_prefix: u8,
}

/// How a client's address was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace<'f> {
    /// The trusted proxies that were walked past, from the peer on.
    pub proxies: Vec<IpAddr>,
    /// Where the walk ended.
    pub address: IpAddr,
    /// Why it ended there.
    pub end: TraceEnd<'f>,
}

/// Why the walk to the client's address went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd<'f> {
    /// The address is no trusted proxy's.
    Stranger,
    /// The address is a trusted proxy's, which forwarded nothing more.
    Exhausted,
    /// What it forwarded is no address.
    Garbage(&'f [u8]),
}

// === impl AddressRules ===

impl Default for AddressRules {
    fn default() -> Self {
        Self { trusted_proxies: Vec::new(), ipv6_prefix: 64 }
    }
}

impl AddressRules {
    /// The client's address: the nearest one that is not a trusted proxy's. Without a peer there is none, since
    /// there is no proxy to trust.
    #[inline]
    pub fn address(&self, facts: &Facts<'_>) -> Option<IpAddr> {
        let peer = facts.peer?;
        // Most often that is the peer, and no field is looked for.
        Some(if self.trusts(peer) { self.walk(peer, facts, |_| {}).0 } else { peer })
    }

    /// The network whose share of something a request uses, which comes from a trusted peer or not; none if nothing is
    /// known of its client but a trusted proxy.
    pub(crate) fn client(&self, facts: &Facts<'_>, trusted_peer: bool) -> Option<IpNet> {
        let peer = facts.peer?;
        if !trusted_peer {
            return Some(self.network(peer));
        }
        let (address, _) = self.walk(peer, facts, |_| {});
        (!self.trusts(address)).then(|| self.network(address))
    }

    /// Finds what [`address`](Self::address) finds, and keeps why.
    pub fn trace<'f>(&self, facts: &'f Facts<'_>) -> Option<Trace<'f>> {
        let mut proxies = Vec::new();
        let (address, garbage) = self.walk(facts.peer?, facts, |proxy| proxies.push(proxy));
        let end = match garbage {
            Some(hop) => TraceEnd::Garbage(hop),
            None if self.trusts(address) => TraceEnd::Exhausted,
            None => TraceEnd::Stranger,
        };
        Some(Trace { proxies, address, end })
    }

    /// Walks to the client's address, past trusted proxies; tells the garbage that ended the walk, if any did.
    fn walk<'f>(&self, peer: IpAddr, facts: &'f Facts<'_>, mut past: impl FnMut(IpAddr)) -> (IpAddr, Option<&'f [u8]>) {
        if facts.peer_is_client {
            return (peer, None);
        }
        let mut nearest = peer;
        let fields = facts.headers.get_all(X_FORWARDED_FOR).iter().rev();
        for hop in fields.flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b',')) {
            if !self.trusts(nearest) {
                break;
            }
            let Some(address) = hop_address(hop) else { return (nearest, Some(hop)) };
            past(nearest);
            nearest = address;
        }
        (nearest, None)
    }

    /// Is `address` one of the trusted proxies?
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// The network that stands for `address` as a client.
    pub fn network(&self, address: IpAddr) -> IpNet {
        match address {
            IpAddr::V4(address) => IpNet::from(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let bits = u128::from(address) & prefix_mask(self.ipv6_prefix);
                IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from(bits), self.ipv6_prefix.min(128)))
            }
        }
    }
}

fn prefix_mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn hop_address(hop: &[u8]) -> Option<IpAddr> {
    let hop = std::str::from_utf8(hop).ok()?.trim();
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop);
    let with_port = || hop.parse().ok().map(|address: std::net::SocketAddr| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;

    fn facts<'a>(headers: &'a HeaderMap, peer: &str) -> Facts<'a> {
        let peer: IpAddr = peer.parse().expect("an address");
        let (host, path) = ("a".into(), "/".into());
        Facts {
            method: &Method::GET,
            host,
            path,
            query: None,
            headers,
            peer: Some(peer.to_canonical()),
            peer_is_client: false,
            tls: None,
            key: None,
        }
    }

    fn headers(fields: &[(&'static str, &[u8])]) -> HeaderMap {
        let value = |value: &[u8]| HeaderValue::from_bytes(value).expect("a header value");
        fields.iter().map(|(name, bytes)| (HeaderName::from_static(name), value(bytes))).collect()
    }

    fn address(peer: &str, forwarded: &[&[u8]]) -> String {
        let fields: Vec<_> = forwarded.iter().map(|value| ("x-forwarded-for", *value)).collect();
        let trusted_proxies = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().expect("a network")).to_vec();
        let rules = AddressRules { trusted_proxies, ipv6_prefix: 64 };
        rules.address(&facts(&headers(&fields), peer)).expect("there is a peer").to_string()
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_forwards() {
        assert_eq!(address("192.0.2.1", &[b"198.51.100.7"]), "192.0.2.1");
        assert_eq!(address("::ffff:192.0.2.1", &[]), "192.0.2.1");
    }

    #[test]
    fn trusted_proxies_are_walked_from_the_right_to_the_first_stranger() {
        assert_eq!(address("10.0.0.1", &[b"198.51.100.7"]), "198.51.100.7");
        assert_eq!(address("10.0.0.1", &[b"6.6.6.6, 198.51.100.7, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(address("10.0.0.1", &[b"6.6.6.6", b"198.51.100.7:4711, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(address("fd00::1", &[b"[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(address("10.0.0.1", &[b"::ffff:198.51.100.7"]), "198.51.100.7");
        assert_eq!(address("10.0.0.1", &[b"10.0.0.9, 10.0.0.8"]), "10.0.0.9");
    }

    #[test]
    fn garbage_ends_the_walk_at_the_last_address_that_was_one() {
        assert_eq!(address("10.0.0.1", &[b"198.51.100.7, unknown"]), "10.0.0.1");
        assert_eq!(address("10.0.0.1", &[b"6.6.6.6, \xff, 10.2.3.4"]), "10.2.3.4");
        assert_eq!(address("10.0.0.1", &[b""]), "10.0.0.1");
    }

    #[test]
    fn a_trace_tells_the_proxies_and_why_the_walk_ended() {
        let trace = |peer: &str, forwarded: &'static [u8]| {
            let trusted_proxies = vec!["10.0.0.0/8".parse().expect("a network")];
            let rules = AddressRules { trusted_proxies, ipv6_prefix: 64 };
            let headers = headers(&[("x-forwarded-for", forwarded)]);
            let facts = facts(&headers, peer);
            let trace = rules.trace(&facts).expect("there is a peer");
            let proxies: Vec<_> = trace.proxies.iter().map(ToString::to_string).collect();
            let end = match trace.end {
                TraceEnd::Stranger => "stranger".to_owned(),
                TraceEnd::Exhausted => "exhausted".to_owned(),
                TraceEnd::Garbage(hop) => String::from_utf8_lossy(hop).into_owned(),
            };
            format!("{} {} {end}", proxies.join("<"), trace.address)
        };
        assert_eq!(trace("192.0.2.1", b"198.51.100.7"), " 192.0.2.1 stranger");
        assert_eq!(trace("10.0.0.1", b"6.6.6.6, 198.51.100.7, 10.2.3.4"), "10.0.0.1<10.2.3.4 198.51.100.7 stranger");
        assert_eq!(trace("10.0.0.1", b"10.2.3.4"), "10.0.0.1 10.2.3.4 exhausted");
        assert_eq!(trace("10.0.0.1", b"6.6.6.6,?,10.2.3.4"), "10.0.0.1 10.2.3.4 ?");
    }

    #[test]
    fn an_ipv6_client_is_its_prefix() {
        let network = |prefix, address: &str| {
            let rules = AddressRules { ipv6_prefix: prefix, ..AddressRules::default() };
            rules.network(address.parse().expect("an address"))
        };
        assert_eq!(network(64, "2001:db8::1"), network(64, "2001:db8::ffff:1"));
        assert_ne!(network(64, "2001:db8::1"), network(64, "2001:db8:0:1::1"));
        assert_ne!(network(128, "2001:db8::1"), network(128, "2001:db8::2"));
    }
}
