//! The handshake of WebSocket, where it is the gateway that makes it (RFC 6455 section 4.1): a client of HTTP/2 sends
//! no key.

use http::HeaderValue;
use sha1_smol::Sha1;

/// What is put behind a key (RFC 6455 section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A key that nobody can foresee, and what its answer must say.
pub(super) fn key() -> (HeaderValue, HeaderValue) {
    let mut nonce = [0; 16];
    // A system without randomness starts no process.
    _ = getrandom::fill(&mut nonce);
    let key = base64(&nonce);
    (value(&key), value(&accept(&key)))
}

fn accept(key: &str) -> String {
    base64(&Sha1::from(format!("{key}{GUID}")).digest().bytes())
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("")) // base64 is a value
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
    fn the_answer_to_a_key_is_that_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn no_two_keys_are_the_same() {
        let (one, other) = (key(), key());
        assert!(one != other && one.0.len() == 24 && one.1.len() == 28);
    }
}
