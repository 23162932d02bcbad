//! The scheme and the authority of a target, held against the connection that it came on.

use http::uri::Authority;
use http::{HeaderMap, Uri, Version, header};

use crate::refusal::Refusal;

/// The schemes whose resources may be asked for on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schemes {
    /// In clear, `http` alone (RFC 9110 section 7.4).
    Clear,
    /// Over TLS, and in clear from a trusted proxy, which may have ended the client's TLS: `https`, too.
    Secure,
}

impl Schemes {
    /// Why a target is not for this connection, if it is not. One that names no scheme is.
    pub(super) fn refuse(self, version: Version, uri: &Uri, fields: &HeaderMap) -> Option<Refusal> {
        let scheme = uri.scheme_str()?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return Some(Refusal::SchemeUnknown);
        }
        if is_https && self == Self::Clear {
            return Some(Refusal::Misdirected);
        }
        // In HTTP/1.1 the target counts, whatever the field says (RFC 9112 section 3.2.2).
        let authority = uri.authority().filter(|_| version == Version::HTTP_2)?;
        differs(if is_https { 443 } else { 80 }, authority, fields).then_some(Refusal::TwoHosts)
    }
}

/// Whether a `host` is another than `:authority` (RFC 9113 section 8.3.1), where a port is this one unless it is told.
fn differs(default: u16, authority: &Authority, fields: &HeaderMap) -> bool {
    let port = |authority: &Authority| authority.port_u16().unwrap_or(default);
    fields.get_all(header::HOST).iter().any(|host| match Authority::try_from(host.as_bytes()) {
        Ok(host) => !host.host().eq_ignore_ascii_case(authority.host()) || port(&host) != port(authority),
        Err(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_of_the_schemes_of_its_connection() {
        let refuse =
            |schemes: Schemes, uri: &str| schemes.refuse(Version::HTTP_11, &uri.parse().unwrap(), &HeaderMap::new());
        for both in [Schemes::Clear, Schemes::Secure] {
            for good in ["/", "*", "http://a/", "HTTP://a/"] {
                assert_eq!(refuse(both, good), None, "{both:?} {good}");
            }
            for bad in ["ftp://a/", "ws://a/", "httpx://a/"] {
                assert_eq!(refuse(both, bad), Some(Refusal::SchemeUnknown), "{both:?} {bad}");
            }
        }
        for https in ["https://a/", "HttpS://a/"] {
            assert_eq!(refuse(Schemes::Clear, https), Some(Refusal::Misdirected));
            assert_eq!(refuse(Schemes::Secure, https), None);
        }
    }

    #[test]
    fn in_http2_a_host_names_the_authority_or_is_not_there() {
        let refuse = |version, uri: &str, host: &str| {
            let fields = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            Schemes::Secure.refuse(version, &uri.parse().unwrap(), &fields)
        };
        for same in ["a.example", "A.Example", "a.example:443"] {
            assert_eq!(refuse(Version::HTTP_2, "https://a.example/", same), None, "{same}");
        }
        for other in ["b.example", "a.example:80", "a.example.", "", "a b"] {
            assert_eq!(refuse(Version::HTTP_2, "https://a.example/", other), Some(Refusal::TwoHosts), "{other}");
            assert_eq!(refuse(Version::HTTP_11, "https://a.example/", other), None, "{other}");
        }
    }
}
