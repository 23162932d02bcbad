//! Field names that some origins confuse with others.
//!
//! CGI, WSGI and their kin write `-` in a name as `_`, and some of them every other character too: what a client sends as
//! `X_Real_IP` or `X.Real.IP` such an origin reads as `X-Real-IP`.

use http::HeaderName;

/// Whether a name has a character other than letters, digits and hyphens.
pub(crate) fn is_odd(name: &str) -> bool {
    name.bytes().any(|byte| !(byte.is_ascii_alphanumeric() || byte == b'-'))
}

/// The name that an origin could confuse this one with.
pub(crate) fn look_alike(name: &str) -> Option<HeaderName> {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    HeaderName::from_bytes(&name.bytes().map(plain).collect::<Vec<u8>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_name_could_be_taken_for_another() {
        for name in ["x_real_ip", "x.real.ip", "x-real_ip", "x~real|ip"] {
            assert!(is_odd(name), "{name}");
            assert_eq!(look_alike(name), Some(HeaderName::from_static("x-real-ip")));
        }
        assert!(!is_odd("x-real-ip2"));
    }
}
