//! Fields that tell the other side about the way a message took.
//!
//! `X-Forwarded-*` from a trusted proxy is continued; from anybody else it is that client's invention and replaced,
//! also where the rule file lets it pass.

use std::io::Write;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::ForwardPeer;
use crate::sanitize::{FieldKind, FieldKinds};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");

/// The longest an address is written: an IPv6 address that ends in an IPv4 one.
const LONGEST_ADDRESS: usize = 45;

/// Says for whom a request is forwarded. `Host` is there already, and known where it was put there.
pub(crate) fn forwarded(headers: &mut HeaderMap, kinds: FieldKinds, peer: ForwardPeer, host: Option<HeaderValue>) {
    let believed = |field| peer.trusted && kinds.has(field);
    let chain = if believed(FieldKind::ForwardedFor) { chain(headers, peer.address) } else { written(peer.address) };
    headers.insert(X_FORWARDED_FOR, chain);
    if !believed(FieldKind::ForwardedProto) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if peer.over_tls { "https" } else { "http" }));
    }
    if !believed(FieldKind::ForwardedHost) {
        match host.or_else(|| headers.get(header::HOST).cloned()) {
            Some(host) => _ = headers.insert(X_FORWARDED_HOST, host),
            None => _ = headers.remove(X_FORWARDED_HOST),
        }
    }
}

/// The addresses so far, in one line, and the peer's.
fn chain(headers: &HeaderMap, peer: IpAddr) -> HeaderValue {
    let mut chain = Vec::with_capacity(2 * LONGEST_ADDRESS);
    for value in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(written(peer).as_bytes());
    // Parts of valid values with a comma between them are a valid value.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(chain)).unwrap_or(UNKNOWN)
}

/// An address as it is written; without the detours of a `String`, as every request needs one.
fn written(address: IpAddr) -> HeaderValue {
    let mut text = [0; LONGEST_ADDRESS];
    let length = match address {
        IpAddr::V4(address) => dotted(address.octets(), &mut text),
        IpAddr::V6(address) => {
            let mut rest = &mut text[..];
            // It fits, by the definition of the longest.
            _ = write!(rest, "{address}");
            LONGEST_ADDRESS - rest.len()
        }
    };
    HeaderValue::from_bytes(&text[..length]).unwrap_or(UNKNOWN)
}

/// Writes the octets with dots between them; returns the length.
fn dotted(octets: [u8; 4], text: &mut [u8; LONGEST_ADDRESS]) -> usize {
    let mut end = 0;
    for octet in octets {
        for unit in [100, 10, 1] {
            if octet >= unit || unit == 1 {
                text[end] = b'0' + octet / unit % 10;
                end += 1;
            }
        }
        text[end] = b'.';
        end += 1;
    }
    end - 1
}

/// Says that a message came through here (RFC 9110 section 7.6.3), in which version it was received.
pub(crate) fn via(headers: &mut HeaderMap, received: Version) {
    headers.append(
        header::VIA,
        HeaderValue::from_static(match received {
            Version::HTTP_2 => "2 tidegate",
            Version::HTTP_10 => "1.0 tidegate",
            _ => "1.1 tidegate",
        }),
    );
}

/// Joins the cookie crumbs of HTTP/2 (RFC 9113 section 8.2.3). One that is empty would leave a blank at an end.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::COOKIE);
    if lines.iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = lines.iter().map(HeaderValue::as_bytes).filter(|crumb| !crumb.is_empty()).collect();
    if let Ok(cookie) = HeaderValue::from_maybe_shared(bytes::Bytes::from(crumbs.join(&b"; "[..]))) {
        headers.insert(header::COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, &str); 4] = [
        ("host", "api.example"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-for", "192.0.2.2"),
        ("x-forwarded-proto", "https"),
    ];

    #[test]
    fn cookies_are_joined_without_those_that_are_empty() {
        for (crumbs, joined) in
            [(&["a=1", "b=2"][..], "a=1; b=2"), (&["a=1", ""], "a=1"), (&["", "a=1"], "a=1"), (&["", ""], "")]
        {
            let mut headers: HeaderMap =
                crumbs.iter().map(|crumb| (header::COOKIE, HeaderValue::from_static(crumb))).collect();
            join_cookies(&mut headers);
            assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), [joined]);
        }
    }

    fn sent(trusted: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in FIELDS {
            headers.append(name, HeaderValue::from_static(value));
        }
        let kinds = FieldKinds::classify(&headers);
        let peer = ForwardPeer { address: "198.51.100.7".parse().unwrap(), trusted, over_tls: false };
        forwarded(&mut headers, kinds, peer, None);
        headers
    }

    #[test]
    fn addresses_are_written_as_everybody_writes_them() {
        for address in ["0.0.0.0", "10.9.99.100", "255.255.255.255", "::", "2001:db8::1", "::ffff:192.0.2.255"] {
            assert_eq!(written(address.parse().unwrap()), address);
        }
        let longest = "1111:2222:3333:4444:5555:6666:7777:8888";
        assert_eq!(written(longest.parse().unwrap()), longest);
    }

    #[test]
    fn a_trusted_peer_continues_its_chain() {
        let headers = sent(true);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2, 198.51.100.7");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "api.example");
    }

    #[test]
    fn what_anybody_else_says_about_others_is_replaced() {
        let headers = sent(false);
        assert_eq!(headers["x-forwarded-for"], "198.51.100.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "api.example");
    }

    #[test]
    fn cookie_crumbs_become_one_cookie() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=1", "b=2", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }
}
