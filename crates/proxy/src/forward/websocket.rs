//! The WebSocket handshake that the gateway performs for HTTP/2 clients, which send no key (RFC 6455 section 4.1).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderValue;
use sha1_smol::Sha1;

use tidegate_limit::random::random;

/// The suffix that is hashed with the key (RFC 6455 section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Generates a random key. Returns the key and the expected `Sec-WebSocket-Accept`.
pub(super) fn generate_key() -> (HeaderValue, HeaderValue) {
    let key = BASE64_STANDARD.encode(random::<16>());
    (value(&key), value(&accept(&key)))
}

fn accept(key: &str) -> String {
    BASE64_STANDARD.encode(Sha1::from(format!("{key}{GUID}")).digest().bytes())
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("")) // cannot fail: base64 is valid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_value_matches_the_example_of_rfc_6455() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn two_keys_differ() {
        let (one, other) = (generate_key(), generate_key());
        assert!(one != other && one.0.len() == 24 && one.1.len() == 28);
    }
}
