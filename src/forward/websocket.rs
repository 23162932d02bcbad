//! The WebSocket handshake that the gateway performs for HTTP/2 clients, which send no key (RFC 6455 section 4.1).

use http::HeaderValue;
use sha1_smol::Sha1;

use crate::random::random;

/// The suffix that is hashed with the key (RFC 6455 section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Generates a random key. Returns the key and the expected `Sec-WebSocket-Accept`.
pub(super) fn generate_key() -> (HeaderValue, HeaderValue) {
    let key = base64(&random::<16>());
    (value(&key), value(&accept(&key)))
}

fn accept(key: &str) -> String {
    base64(&Sha1::from(format!("{key}{GUID}")).digest().bytes())
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("")) // cannot fail: base64 is valid
}

fn base64(bytes: &[u8]) -> String {
    let four = |three: &[u8]| {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[(bits >> shift & 63) as usize]))
    };
    let mut text: String = bytes.chunks(3).flat_map(four).collect();
    let padding = (3 - bytes.len() % 3) % 3;
    text.truncate(text.len() - padding);
    text.extend(std::iter::repeat_n('=', padding));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_value_matches_the_example_of_rfc_6455() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn base64_matches_the_examples_of_rfc_4648() {
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn two_keys_differ() {
        let (one, other) = (generate_key(), generate_key());
        assert!(one != other && one.0.len() == 24 && one.1.len() == 28);
    }
}
