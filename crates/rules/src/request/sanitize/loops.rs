//! Forwarding loops, detected by `Via` (RFC 9110 section 7.6.3).

use http::{HeaderMap, header};

/// The largest number of gateways named `tidegate` in `Via`: a chain of several gateways is legitimate.
const MAX_PASSES: usize = 5;

/// Returns `true` if the request has passed more than [`MAX_PASSES`] gateways named `tidegate`.
pub(super) fn is_loop(headers: &HeaderMap) -> bool {
    let hops = headers.get_all(header::VIA).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    hops.filter(|hop| names_tidegate(hop)).count() > MAX_PASSES
}

/// Returns `true` if a member of `Via` names Tidegate, as in `1.1 tidegate (comment)`.
fn names_tidegate(hop: &[u8]) -> bool {
    let mut words = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(b"tidegate"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn too_many_passes_are_a_loop() {
        let passes = |count: usize| {
            let mut headers = HeaderMap::new();
            headers
                .append(header::VIA, HeaderValue::from_static("1.1 nginx, 1.0 tidegates, HTTP/1.1 a (1.1 tidegate)"));
            let line = vec!["2\tTideGate (x)"; count / 2].join(",");
            headers.append(header::VIA, HeaderValue::from_str(&line).unwrap());
            for _ in 0..count - count / 2 {
                headers.append(header::VIA, HeaderValue::from_static("1.1 tidegate"));
            }
            is_loop(&headers)
        };
        assert_eq!([0, 1, 5, 6, 7].map(passes), [false, false, false, true, true]);
    }
}
