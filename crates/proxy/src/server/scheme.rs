//! Checks the scheme and the authority of a request target.

use http::uri::Authority;
use http::{HeaderMap, Uri, Version, header};

use tidegate_layer::local_response::LocalResponse;

/// Returns a rejection if the scheme is unknown or, in HTTP/2, the `host` field contradicts the target. Targets
/// without a scheme are accepted.
///
/// Requests for `https` on a plaintext connection are served, although RFC 9110 section 7.4 suggests to reject them.
/// Proxies that terminate TLS send them, and haproxy sends `https` even for requests that it received in plaintext.
pub(super) fn check(version: Version, uri: &Uri, fields: &HeaderMap) -> Option<LocalResponse> {
    let scheme = uri.scheme_str()?;
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && !scheme.eq_ignore_ascii_case("http") {
        return Some(LocalResponse::UnknownScheme);
    }
    // In HTTP/1.1 the target counts and the field is ignored (RFC 9112 section 3.2.2).
    let authority = uri.authority().filter(|_| version == Version::HTTP_2)?;
    host_differs(if is_https { 443 } else { 80 }, authority, fields).then_some(LocalResponse::HostMismatch)
}

/// Returns `true` if a `host` field differs from `:authority` (RFC 9113 section 8.3.1). `default` is the port where
/// none is given.
fn host_differs(default: u16, authority: &Authority, fields: &HeaderMap) -> bool {
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
    fn only_http_schemes_are_accepted() {
        let rejected = |uri: &str| check(Version::HTTP_11, &uri.parse().unwrap(), &HeaderMap::new());
        for good in ["/", "*", "http://a/", "HTTP://a/", "https://a/", "HttpS://a/"] {
            assert_eq!(rejected(good), None, "{good}");
        }
        for bad in ["ftp://a/", "ws://a/", "httpx://a/"] {
            assert_eq!(rejected(bad), Some(LocalResponse::UnknownScheme), "{bad}");
        }
    }

    #[test]
    fn http2_host_must_match_the_authority() {
        let rejected = |version, uri: &str, host: &str| {
            let fields = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            check(version, &uri.parse().unwrap(), &fields)
        };
        for same in ["a.example", "A.Example", "a.example:443"] {
            assert_eq!(rejected(Version::HTTP_2, "https://a.example/", same), None, "{same}");
        }
        for other in ["b.example", "a.example:80", "a.example.", "", "a b"] {
            assert_eq!(
                rejected(Version::HTTP_2, "https://a.example/", other),
                Some(LocalResponse::HostMismatch),
                "{other}"
            );
            assert_eq!(rejected(Version::HTTP_11, "https://a.example/", other), None, "{other}");
        }
    }
}
