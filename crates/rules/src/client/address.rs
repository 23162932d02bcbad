//! Determines the address of a client, which may be behind proxies.
//!
//! The client is the peer of the connection, unless the peer is a trusted proxy. In that case, `X-Forwarded-For` is
//! read from right to left until the first address that is not a trusted proxy. An invalid entry ends the search,
//! because clients can forge everything to the left of it.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderName;
use ipnet::{IpNet, Ipv6Net};

use super::ClientError;
use crate::request::facts::Facts;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// How client addresses are determined: the trusted proxies, and the size of the IPv6 network that counts as one
/// client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRules {
    /// Networks of proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The bits of an IPv6 address that identify a client, 32 to 128. Providers assign at least a /64 to each customer.
    pub ipv6_prefix: u8,
}

/// How a client's address was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressTrace<'f> {
    /// The trusted proxies that were skipped, starting with the peer.
    pub proxies: Vec<IpAddr>,
    /// The address at which the search ended.
    pub address: IpAddr,
    /// Why the search ended.
    pub end: TraceEnd<'f>,
}

/// Why the search for the client's address ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd<'f> {
    /// The address is not a trusted proxy.
    Untrusted,
    /// The address is a trusted proxy, and no further address was forwarded.
    Exhausted,
    /// The address is a trusted proxy, and the next entry is not an address.
    Invalid(&'f [u8]),
}

// === impl AddressRules ===

impl Default for AddressRules {
    fn default() -> Self {
        Self { trusted_proxies: Vec::new(), ipv6_prefix: 64 }
    }
}

impl AddressRules {
    /// Returns the client's address: the nearest hop that is not a trusted proxy, or else the last valid hop. Returns
    /// `None` if the peer is unknown.
    #[inline]
    pub fn address(&self, facts: &Facts<'_>) -> Option<IpAddr> {
        let peer = facts.peer?;
        // Usually, the peer is the client, and no header field is read.
        Some(if self.trusts(peer) { self.search(peer, facts, |_| {}).0 } else { peer })
    }

    /// Returns the same address as [`address`](Self::address).
    ///
    /// # Errors
    /// The peer is unknown, or an invalid entry ended the search.
    pub fn valid_address(&self, facts: &Facts<'_>) -> Result<IpAddr, ClientError> {
        let peer = facts.peer.ok_or(ClientError::Missing)?;
        match self.search(peer, facts, |_| {}) {
            (address, None) => Ok(address),
            (_, Some(_)) => Err(ClientError::Malformed),
        }
    }

    /// Returns the client network whose share of resources a request uses. Returns `None` if the peer is unknown or all
    /// hops are trusted proxies.
    pub fn client_network(&self, facts: &Facts<'_>, trusted_peer: bool) -> Option<IpNet> {
        let peer = facts.peer?;
        if !trusted_peer {
            return Some(self.network(peer));
        }
        let (address, _) = self.search(peer, facts, |_| {});
        (!self.trusts(address)).then(|| self.network(address))
    }

    /// Finds the same address as [`address`](Self::address), and records how.
    pub fn trace<'f>(&self, facts: &'f Facts<'_>) -> Option<AddressTrace<'f>> {
        let mut proxies = Vec::new();
        let (address, invalid) = self.search(facts.peer?, facts, |proxy| proxies.push(proxy));
        let end = match invalid {
            Some(hop) => TraceEnd::Invalid(hop),
            None if self.trusts(address) => TraceEnd::Exhausted,
            None => TraceEnd::Untrusted,
        };
        Some(AddressTrace { proxies, address, end })
    }

    /// Searches for the client's address, and calls `skipped` for each trusted proxy on the way. Also returns the
    /// invalid entry that ended the search, if there was one.
    fn search<'f>(
        &self,
        peer: IpAddr,
        facts: &'f Facts<'_>,
        mut skipped: impl FnMut(IpAddr),
    ) -> (IpAddr, Option<&'f [u8]>) {
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
            skipped(nearest);
            nearest = address;
        }
        (nearest, None)
    }

    /// Returns `true` if `address` is a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// Returns the network of `address` that counts as one client.
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

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
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
            peer_is_trusted: false,
            tls: None,
            extensions: None,
            identity: None,
            time: None,
            body: None,
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
    fn untrusted_peer_is_the_client() {
        assert_eq!(address("192.0.2.1", &[b"198.51.100.7"]), "192.0.2.1");
        assert_eq!(address("::ffff:192.0.2.1", &[]), "192.0.2.1");
    }

    #[test]
    fn first_untrusted_address_from_the_right_is_the_client() {
        assert_eq!(address("10.0.0.1", &[b"198.51.100.7"]), "198.51.100.7");
        assert_eq!(address("10.0.0.1", &[b"6.6.6.6, 198.51.100.7, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(address("10.0.0.1", &[b"6.6.6.6", b"198.51.100.7:4711, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(address("fd00::1", &[b"[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(address("10.0.0.1", &[b"::ffff:198.51.100.7"]), "198.51.100.7");
        assert_eq!(address("10.0.0.1", &[b"10.0.0.9, 10.0.0.8"]), "10.0.0.9");
    }

    #[test]
    fn invalid_entry_ends_the_search_at_the_last_valid_address() {
        assert_eq!(address("10.0.0.1", &[b"198.51.100.7, unknown"]), "10.0.0.1");
        assert_eq!(address("10.0.0.1", &[b"6.6.6.6, \xff, 10.2.3.4"]), "10.2.3.4");
        assert_eq!(address("10.0.0.1", &[b""]), "10.0.0.1");
    }

    #[test]
    fn trace_has_the_proxies_and_why_the_search_ended() {
        let trace = |peer: &str, forwarded: &'static [u8]| {
            let trusted_proxies = vec!["10.0.0.0/8".parse().expect("a network")];
            let rules = AddressRules { trusted_proxies, ipv6_prefix: 64 };
            let headers = headers(&[("x-forwarded-for", forwarded)]);
            let facts = facts(&headers, peer);
            let trace = rules.trace(&facts).expect("there is a peer");
            let proxies: Vec<_> = trace.proxies.iter().map(ToString::to_string).collect();
            let end = match trace.end {
                TraceEnd::Untrusted => "untrusted".to_owned(),
                TraceEnd::Exhausted => "exhausted".to_owned(),
                TraceEnd::Invalid(hop) => String::from_utf8_lossy(hop).into_owned(),
            };
            format!("{} {} {end}", proxies.join("<"), trace.address)
        };
        assert_eq!(trace("192.0.2.1", b"198.51.100.7"), " 192.0.2.1 untrusted");
        assert_eq!(trace("10.0.0.1", b"6.6.6.6, 198.51.100.7, 10.2.3.4"), "10.0.0.1<10.2.3.4 198.51.100.7 untrusted");
        assert_eq!(trace("10.0.0.1", b"10.2.3.4"), "10.0.0.1 10.2.3.4 exhausted");
        assert_eq!(trace("10.0.0.1", b"6.6.6.6,?,10.2.3.4"), "10.0.0.1 10.2.3.4 ?");
    }

    #[test]
    fn ipv6_addresses_with_the_same_prefix_are_one_client() {
        let network = |prefix, address: &str| {
            let rules = AddressRules { ipv6_prefix: prefix, ..AddressRules::default() };
            rules.network(address.parse().expect("an address"))
        };
        assert_eq!(network(64, "2001:db8::1"), network(64, "2001:db8::ffff:1"));
        assert_ne!(network(64, "2001:db8::1"), network(64, "2001:db8:0:1::1"));
        assert_ne!(network(128, "2001:db8::1"), network(128, "2001:db8::2"));
    }
}
