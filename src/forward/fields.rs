//! Fields that tell the other side about the way a message took.
//!
//! `X-Forwarded-*` from a trusted proxy is continued; from anybody else it is that client's invention and replaced.

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::Peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Says for whom a request is forwarded. `Host` is there already.
pub(crate) fn forwarded(headers: &mut HeaderMap, peer: Peer) {
    if !peer.trusted {
        for name in [header::FORWARDED, X_REAL_IP, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO] {
            headers.remove(name);
        }
    }
    let chain = chain(headers, peer);
    headers.insert(X_FORWARDED_FOR, chain);
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if !headers.contains_key(X_FORWARDED_HOST)
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// The addresses so far, in one line, and the peer's.
fn chain(headers: &HeaderMap, peer: Peer) -> HeaderValue {
    let mut chain = Vec::with_capacity(40);
    for value in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.address.to_string().as_bytes());
    // Parts of valid values with a comma between them are a valid value.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(chain)).unwrap_or(HeaderValue::from_static("unknown"))
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

/// Joins the cookie crumbs of HTTP/2 (RFC 9113 section 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return };
    let mut cookie = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        cookie.extend_from_slice(b"; ");
        cookie.extend_from_slice(crumb.as_bytes());
    }
    if let Ok(cookie) = HeaderValue::from_maybe_shared(bytes::Bytes::from(cookie)) {
        headers.insert(header::COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, &str); 6] = [
        ("host", "api.example"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-for", "192.0.2.2"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=192.0.2.1"),
        ("x-real-ip", "192.0.2.1"),
    ];

    fn sent(trusted: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in FIELDS {
            headers.append(name, HeaderValue::from_static(value));
        }
        forwarded(&mut headers, Peer { address: "198.51.100.7".parse().unwrap(), trusted });
        headers
    }

    #[test]
    fn a_trusted_peer_continues_its_chain() {
        let headers = sent(true);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2, 198.51.100.7");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "api.example");
        assert_eq!(headers["forwarded"], "for=192.0.2.1");
        assert_eq!(headers["x-real-ip"], "192.0.2.1");
    }

    #[test]
    fn what_anybody_else_says_about_others_is_replaced() {
        let headers = sent(false);
        assert_eq!(headers["x-forwarded-for"], "198.51.100.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "api.example");
        assert!(!headers.contains_key("forwarded"));
        assert!(!headers.contains_key("x-real-ip"));
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
