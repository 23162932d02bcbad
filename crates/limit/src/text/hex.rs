//! Hexadecimal digits.

/// Returns bytes as lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    let digit = |digit: u8| char::from(b"0123456789abcdef"[usize::from(digit)]);
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    text
}

/// Returns the bytes of digits in any case. Returns `None` for other texts.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks();
    rest.is_empty().then(|| pairs.iter().map(|pair| byte(*pair)).collect::<Option<_>>()).flatten()
}

/// Returns the byte of two digits in any case.
pub fn byte([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_digits_are_converted() {
        assert_eq!(encode(&[0, 0x7f, 0xa0, 0xff]), "007fa0ff");
        assert_eq!(decode("007fA0Ff"), Some(vec![0, 0x7f, 0xa0, 0xff]));
        for invalid in ["0", "000", "0g", "+0", " 1", "\u{e9}"] {
            assert_eq!(decode(invalid), None, "{invalid}");
        }
    }
}
