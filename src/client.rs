//! Who is asking, and why we think so.
//!
//! An address is the peer of the connection unless that peer is a trusted proxy; then `X-Forwarded-For` is walked from
//! the right, past trusted proxies, to the first address that is none. Garbage ends the walk where it stands: what is
//! left of it may be anybody's invention.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::HeaderName;
use ipnet::{IpNet, Ipv6Net};

use crate::facts::Facts;
use crate::limit::ClientId;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What makes two requests come from the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSource {
    /// The client's address: `ip`.
    Ip,
    /// The value of a header field: `header:NAME`.
    Header(HeaderName),
    /// The value of a cookie: `cookie:NAME`.
    Cookie(String),
    /// The value of a query parameter, as it was sent: `query:NAME`.
    Query(String),
    /// The host that was asked for: `host`.
    Host,
    /// The path in its normal form: `path`.
    Path,
    /// All of these together: a list.
    All(Vec<ClientSource>),
}

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

/// Why a request has no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoClient {
    /// It does not carry the value.
    Missing,
    /// It carries the value more than once; whom the upstream would believe is anybody's guess.
    Ambiguous,
}

// === impl ClientSource ===

impl ClientSource {
    /// The client that `facts` come from.
    ///
    /// # Errors
    /// A request that lacks the value, or has it twice.
    pub fn identify(&self, facts: &Facts<'_>, rules: &AddressRules) -> Result<ClientId, NoClient> {
        if let ClientSource::Ip = self {
            return Ok(ClientId::Address(rules.network(rules.address(facts))));
        }
        let mut value = Vec::new();
        self.encode(facts, rules, &mut value)?;
        Ok(ClientId::Value(value.into_boxed_slice()))
    }

    /// Appends a kind, the length of the name, the name, the length of the value, the value: no two clients alike.
    fn encode(&self, facts: &Facts<'_>, rules: &AddressRules, out: &mut Vec<u8>) -> Result<(), NoClient> {
        match self {
            ClientSource::Ip => {
                let address = rules.network(rules.address(facts));
                put(out, b'i', "", address.to_string().as_bytes());
            }
            ClientSource::Header(name) => put(out, b'h', name.as_str(), header(facts, name)?),
            ClientSource::Cookie(name) => put(out, b'c', name, cookie(facts, name)?),
            ClientSource::Query(name) => put(out, b'q', name, query(facts, name)?),
            ClientSource::Host => put(out, b'o', "", facts.host.as_bytes()),
            ClientSource::Path => put(out, b'p', "", facts.path.as_bytes()),
            ClientSource::All(sources) => {
                for source in sources {
                    source.encode(facts, rules, out)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::All(sources) => {
                let words: Vec<_> = sources.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", words.join(", "))
            }
        }
    }
}

fn put(out: &mut Vec<u8>, kind: u8, name: &str, value: &[u8]) {
    out.reserve_exact(1 + 2 * size_of::<u64>() + name.len() + value.len());
    out.push(kind);
    for text in [name.as_bytes(), value] {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text);
    }
}

fn header<'f>(facts: &'f Facts<'_>, name: &HeaderName) -> Result<&'f [u8], NoClient> {
    only(facts.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()))
}

/// RFC 6265 section 5.4: `name=value` pairs, separated by semicolons.
fn cookie<'f>(facts: &'f Facts<'_>, name: &str) -> Result<&'f [u8], NoClient> {
    let fields = facts.headers.get_all(http::header::COOKIE).iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    only(pairs.filter_map(|pair| value_of(pair.trim_ascii(), name)))
}

fn query<'f>(facts: &'f Facts<'_>, name: &str) -> Result<&'f [u8], NoClient> {
    let pairs = facts.query.unwrap_or_default().as_bytes().split(|byte| *byte == b'&');
    only(pairs.filter_map(|pair| value_of(pair, name)))
}

fn value_of<'f>(pair: &'f [u8], name: &str) -> Option<&'f [u8]> {
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn only<'f>(mut values: impl Iterator<Item = &'f [u8]>) -> Result<&'f [u8], NoClient> {
    let value = values.next().filter(|value| !value.is_empty());
    match (value, values.next()) {
        (_, Some(_)) => Err(NoClient::Ambiguous),
        (Some(value), None) => Ok(value),
        (None, None) => Err(NoClient::Missing),
    }
}

// === impl AddressRules ===

impl Default for AddressRules {
    fn default() -> Self {
        Self { trusted_proxies: Vec::new(), ipv6_prefix: 64 }
    }
}

impl AddressRules {
    /// The client's address: the nearest one that is not a trusted proxy's.
    #[inline]
    pub fn address(&self, facts: &Facts<'_>) -> IpAddr {
        // Most often that is the peer, and no field is looked for.
        if self.trusts(facts.peer) { self.walk(facts, |_| {}).0 } else { facts.peer }
    }

    /// Finds what [`address`](Self::address) finds, and keeps why.
    pub fn trace<'f>(&self, facts: &'f Facts<'_>) -> Trace<'f> {
        let mut proxies = Vec::new();
        let (address, garbage) = self.walk(facts, |proxy| proxies.push(proxy));
        let end = match garbage {
            Some(hop) => TraceEnd::Garbage(hop),
            None if self.trusts(address) => TraceEnd::Exhausted,
            None => TraceEnd::Stranger,
        };
        Trace { proxies, address, end }
    }

    /// Walks to the client's address, past trusted proxies; tells the garbage that ended the walk, if any did.
    fn walk<'f>(&self, facts: &'f Facts<'_>, mut past: impl FnMut(IpAddr)) -> (IpAddr, Option<&'f [u8]>) {
        let mut nearest = facts.peer;
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

    fn facts<'a>(method: &'a Method, headers: &'a HeaderMap, peer: &str) -> Facts<'a> {
        let peer: IpAddr = peer.parse().expect("an address");
        let query = Some("key=1&b=2&b=3&empty=");
        Facts { method, host: "a".into(), path: "/".into(), query, headers, peer: peer.to_canonical() }
    }

    fn headers(fields: &[(&'static str, &[u8])]) -> HeaderMap {
        let value = |value: &[u8]| HeaderValue::from_bytes(value).expect("a header value");
        fields.iter().map(|(name, bytes)| (HeaderName::from_static(name), value(bytes))).collect()
    }

    fn address(peer: &str, forwarded: &[&[u8]]) -> String {
        let fields: Vec<_> = forwarded.iter().map(|value| ("x-forwarded-for", *value)).collect();
        let trusted_proxies = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().expect("a network")).to_vec();
        let rules = AddressRules { trusted_proxies, ipv6_prefix: 64 };
        rules.address(&facts(&Method::GET, &headers(&fields), peer)).to_string()
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
            let facts = facts(&Method::GET, &headers, peer);
            let trace = rules.trace(&facts);
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

    #[test]
    fn a_value_that_is_missing_empty_or_repeated_identifies_nobody() {
        let headers =
            headers(&[("cookie", b"a=1; sid=7; x=1; x=2"), ("x-key", b"k"), ("x-two", b"1"), ("x-two", b"2")]);
        let facts = facts(&Method::GET, &headers, "192.0.2.1");
        let identify = |source: ClientSource| source.identify(&facts, &AddressRules::default()).map(|_| ());
        let header = |name| ClientSource::Header(HeaderName::from_static(name));
        assert_eq!(identify(header("x-key")), Ok(()));
        assert_eq!(identify(header("x-none")), Err(NoClient::Missing));
        assert_eq!(identify(header("x-two")), Err(NoClient::Ambiguous));
        assert_eq!(identify(ClientSource::Cookie("sid".into())), Ok(()));
        assert_eq!(identify(ClientSource::Cookie("x".into())), Err(NoClient::Ambiguous));
        assert_eq!(identify(ClientSource::Cookie("si".into())), Err(NoClient::Missing));
        assert_eq!(identify(ClientSource::Query("key".into())), Ok(()));
        assert_eq!(identify(ClientSource::Query("b".into())), Err(NoClient::Ambiguous));
        assert_eq!(identify(ClientSource::Query("empty".into())), Err(NoClient::Missing));
    }

    #[test]
    fn no_two_lists_of_values_make_the_same_client() {
        let identify = |one: &'static [u8], two: &'static [u8]| {
            let headers = headers(&[("x-one", one), ("x-two", two)]);
            let source = |name| ClientSource::Header(HeaderName::from_static(name));
            let sources = ClientSource::All(vec![source("x-one"), source("x-two")]);
            sources.identify(&facts(&Method::GET, &headers, "192.0.2.1"), &AddressRules::default())
        };
        assert_ne!(identify(b"a", b"bc"), identify(b"ab", b"c"));
        assert_ne!(identify(b"a", b"b"), identify(b"b", b"a"));
    }
}
