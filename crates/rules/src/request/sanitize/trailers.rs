//! Fields that are forbidden as trailers, because recipients need them before the body (RFC 9110 section 6.5.1).

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Fields that frame, route, authorise or describe a message, or describe its path.
const FORBIDDEN: [&str; 31] = [
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "retry-after",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "www-authenticate",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// Returns `true` if this field is removed from trailers of requests and responses.
pub fn is_forbidden(name: &HeaderName) -> bool {
    FORBIDDEN.binary_search(&name.as_str()).is_ok()
}

/// Reduces `Trailer` to the allowed names, in one line. Returns `true` if a name remains.
pub fn filter_announced(headers: &mut HeaderMap, is_forbidden: impl Fn(&HeaderName) -> bool) -> bool {
    let lines = headers.get_all(header::TRAILER).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let names = lines.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    let announced: Vec<HeaderName> = names.filter(|name| !is_forbidden(name)).collect();
    let line = HeaderValue::from_str(&announced.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", "));
    headers.remove(header::TRAILER);
    match line {
        Ok(line) if !announced.is_empty() => headers.insert(header::TRAILER, line).is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_trailers_lose_forbidden_names() {
        assert!(FORBIDDEN.is_sorted());
        for (lines, remaining) in [
            (&["X-Sum, Host", "etag,,content-length"][..], Some("x-sum, etag")),
            (&["x-sum"], Some("x-sum")),
            (&["Host"], None),
            (&["x sum"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::TRAILER, HeaderValue::from_static(line));
            }
            assert_eq!(filter_announced(&mut headers, is_forbidden), remaining.is_some());
            let values: Vec<_> = headers.get_all(header::TRAILER).iter().collect();
            assert_eq!(values, remaining.as_slice(), "{lines:?}");
        }
    }
}
