//! Fuzzes client addresses: only trusted proxies can set the address of a client.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use tidegate_rules::client::AddressRules;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::facts::Requests;

const TRUSTED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const UNTRUSTED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Checks the address from `X-Forwarded-For`. The input is its field lines, separated by line feeds.
pub fn address(data: &[u8]) {
    let lines: Vec<HeaderValue> =
        data.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("a.example"));
    for line in &lines {
        headers.append("x-forwarded-for", line.clone());
    }
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let rules = AddressRules { trusted_proxies: networks.to_vec(), ..AddressRules::default() };
    let (method, uri) = (Method::GET, Uri::from_static("/"));
    let facts =
        |peer| Facts::read(&method, &uri, Version::HTTP_11, &headers, peer, &Requests::default()).expect("facts");
    assert_eq!(rules.address(&facts(UNTRUSTED)), Some(UNTRUSTED), "the field of an untrusted peer was accepted");

    let facts = facts(TRUSTED);
    let found = rules.address(&facts).expect("there is a peer");
    assert_eq!(rules.trace(&facts).map(|trace| trace.address), Some(found));
    let hops: Vec<&[u8]> = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).collect();
    assert_eq!(found, walk(&rules, &hops), "{hops:?}");
    // Hops beyond an untrusted one do not matter.
    if !rules.trusts(found) {
        let line = HeaderValue::from_str(&format!("203.0.113.9, {found}")).expect("a value");
        headers.insert("x-forwarded-for", line);
        let facts =
            Facts::read(&method, &uri, Version::HTTP_11, &headers, TRUSTED, &Requests::default()).expect("facts");
        assert_eq!(rules.address(&facts), Some(found));
    }
}

/// Returns the first hop from the right that is not a trusted proxy, or the last one before an invalid address.
fn walk(rules: &AddressRules, hops: &[&[u8]]) -> IpAddr {
    let mut nearest = TRUSTED;
    for hop in hops.iter().rev() {
        let Some(address) = hop_address(hop).filter(|_| rules.trusts(nearest)) else { break };
        nearest = address;
    }
    nearest
}

fn hop_address(hop: &[u8]) -> Option<IpAddr> {
    let hop = std::str::from_utf8(hop).ok()?.trim();
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop);
    let address: Option<IpAddr> = bare.parse().ok();
    let address = address.or_else(|| hop.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}
