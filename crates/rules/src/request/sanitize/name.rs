//! Field names that some origins confuse with other names.
//!
//! CGI, WSGI and similar interfaces replace `-` in a name by `_`, and some of them replace every other special
//! character too. Such an origin reads `X_Real_IP` and `X.Real.IP` as `X-Real-IP`.

use http::HeaderName;

/// Returns `true` if a name has a character other than letters, digits and hyphens.
pub fn has_unusual_chars(name: &str) -> bool {
    name.bytes().any(|byte| !(byte.is_ascii_alphanumeric() || byte == b'-'))
}

/// Returns the hyphenated name that an origin could confuse this name with.
pub fn canonical_twin(name: &str) -> Option<HeaderName> {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    HeaderName::from_bytes(&name.bytes().map(plain).collect::<Vec<u8>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_name_has_a_canonical_twin() {
        for name in ["x_real_ip", "x.real.ip", "x-real_ip", "x~real|ip"] {
            assert!(has_unusual_chars(name), "{name}");
            assert_eq!(canonical_twin(name), Some(HeaderName::from_static("x-real-ip")));
        }
        assert!(!has_unusual_chars("x-real-ip2"));
    }
}
