//! Forwarding loops, detected by `Via` (RFC 9110 section 7.6.3).

use http::{HeaderMap, header};

/// How often a request may pass gateways of this name: some in a row are intended.
const MOST_PASSES: usize = 5;

/// Whether a request has passed gateways of this name so often that it must be in a loop.
pub(super) fn is_one(headers: &HeaderMap) -> bool {
    let hops = headers.get_all(header::VIA).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    hops.filter(|hop| is_ours(hop)).count() > MOST_PASSES
}

/// Whether a member of `Via` names us, as in `1.1 tidegate (comment)`.
fn is_ours(hop: &[u8]) -> bool {
    let mut words = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(b"tidegate"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_request_that_has_been_here_too_often_goes_in_a_circle() {
        let passes = |count: usize| {
            let mut headers = HeaderMap::new();
            headers
                .append(header::VIA, HeaderValue::from_static("1.1 nginx, 1.0 tidegates, HTTP/1.1 a (1.1 tidegate)"));
            let line = vec!["2\tTideGate (x)"; count / 2].join(",");
            headers.append(header::VIA, HeaderValue::from_str(&line).unwrap());
            for _ in 0..count - count / 2 {
                headers.append(header::VIA, HeaderValue::from_static("1.1 tidegate"));
            }
            is_one(&headers)
        };
        assert_eq!([0, 1, 5, 6, 7].map(passes), [false, false, false, true, true]);
    }
}
