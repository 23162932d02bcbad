//! Fields that describe the path of a message: `X-Forwarded-*` and `Via`.
//!
//! `X-Forwarded-*` of a trusted proxy is continued. `X-Forwarded-*` of any other client is replaced, even if the rule
//! file keeps the field.

use std::io::Write;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::ForwardPeer;
use tidegate_rules::request::sanitize::{FieldKind, FieldKinds};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");

// Constants, because `from_static` checks a value each time that it runs.
const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");
const VIA_1_0: HeaderValue = HeaderValue::from_static("1.0 tidegate");
const VIA_1_1: HeaderValue = HeaderValue::from_static("1.1 tidegate");
const VIA_2: HeaderValue = HeaderValue::from_static("2 tidegate");

/// The length of the longest address: an IPv6 address that ends with an IPv4 address.
const MAX_ADDRESS_LENGTH: usize = 45;

/// Sets `X-Forwarded-*`. `kinds` are the kinds of the `headers`, and `host` is the host of the request.
pub(crate) fn set_forwarded(headers: &mut HeaderMap, kinds: FieldKinds, peer: ForwardPeer, host: Option<HeaderValue>) {
    let is_kept = |field| peer.trusted && kinds.has(field);
    let chain =
        if is_kept(FieldKind::ForwardedFor) { chain(headers, peer.address) } else { format_address(peer.address) };
    headers.insert(X_FORWARDED_FOR, chain);
    if !is_kept(FieldKind::ForwardedProto) {
        let scheme = if peer.over_tls { HTTPS } else { HTTP };
        headers.insert(X_FORWARDED_PROTO, scheme);
    }
    if !is_kept(FieldKind::ForwardedHost) {
        match host {
            Some(host) => _ = headers.insert(X_FORWARDED_HOST, host),
            None => _ = headers.remove(X_FORWARDED_HOST),
        }
    }
}

/// Joins the previous addresses into one line and appends the peer's address.
fn chain(headers: &HeaderMap, peer: IpAddr) -> HeaderValue {
    let mut chain = Vec::with_capacity(2 * MAX_ADDRESS_LENGTH);
    for value in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(format_address(peer).as_bytes());
    // Valid values that are joined by commas are a valid value.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(chain)).unwrap_or(UNKNOWN)
}

/// Formats an address. Does not allocate a `String`, because every request needs an address.
fn format_address(address: IpAddr) -> HeaderValue {
    let mut text = [0; MAX_ADDRESS_LENGTH];
    let length = match address {
        IpAddr::V4(address) => write_ipv4(address.octets(), &mut text),
        IpAddr::V6(address) => {
            let mut rest = &mut text[..];
            // Cannot fail: the buffer has the maximum length.
            _ = write!(rest, "{address}");
            MAX_ADDRESS_LENGTH - rest.len()
        }
    };
    HeaderValue::from_bytes(&text[..length]).unwrap_or(UNKNOWN)
}

/// Writes an IPv4 address. Returns its length.
fn write_ipv4(octets: [u8; 4], text: &mut [u8; MAX_ADDRESS_LENGTH]) -> usize {
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

/// Appends `Via` with the version of the received message (RFC 9110 section 7.6.3).
pub(crate) fn add_via(headers: &mut HeaderMap, received: Version) {
    headers.append(
        header::VIA,
        match received {
            Version::HTTP_2 => VIA_2,
            Version::HTTP_10 => VIA_1_0,
            _ => VIA_1_1,
        },
    );
}

/// Joins repeated `Cookie` fields of HTTP/2 (RFC 9113 section 8.2.3). Drops empty fields.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    if headers.len() == headers.keys_len() {
        return; // no field has two lines
    }
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
    fn empty_cookie_fields_are_dropped() {
        for (crumbs, joined) in
            [(&["a=1", "b=2"][..], "a=1; b=2"), (&["a=1", ""], "a=1"), (&["", "a=1"], "a=1"), (&["", ""], "")]
        {
            let mut headers: HeaderMap =
                crumbs.iter().map(|crumb| (header::COOKIE, HeaderValue::from_static(crumb))).collect();
            join_cookies(&mut headers);
            assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), [joined]);
        }
    }

    fn forwarded(trusted: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in FIELDS {
            headers.append(name, HeaderValue::from_static(value));
        }
        let kinds = FieldKinds::classify(&headers);
        let peer = ForwardPeer { address: "198.51.100.7".parse().unwrap(), trusted, over_tls: false };
        let host = headers.get("host").cloned();
        set_forwarded(&mut headers, kinds, peer, host);
        headers
    }

    #[test]
    fn addresses_have_the_standard_format() {
        for address in ["0.0.0.0", "10.9.99.100", "255.255.255.255", "::", "2001:db8::1", "::ffff:192.0.2.255"] {
            assert_eq!(format_address(address.parse().unwrap()), address);
        }
        let longest = "1111:2222:3333:4444:5555:6666:7777:8888";
        assert_eq!(format_address(longest.parse().unwrap()), longest);
    }

    #[test]
    fn trusted_peer_continues_its_chain() {
        let headers = forwarded(true);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2, 198.51.100.7");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "api.example");
    }

    #[test]
    fn untrusted_forwarded_fields_are_replaced() {
        let headers = forwarded(false);
        assert_eq!(headers["x-forwarded-for"], "198.51.100.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "api.example");
    }

    #[test]
    fn repeated_cookie_fields_are_joined() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=1", "b=2", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }
}
