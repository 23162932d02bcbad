//! Percent-encoding: one spelling for what is forwarded, and one for what is matched.

use super::{EncodedSlash, PathError};

/// Decodes what needs no encoding anywhere (RFC 3986 section 2.3) and writes the rest as it came, its digits in upper case.
pub(super) fn decode(path: &str, slash: EncodedSlash) -> Result<String, PathError> {
    let mut normal = String::with_capacity(path.len());
    let mut raw = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            if !byte.is_ascii_graphic() || byte == b'\\' {
                return Err(PathError::Character);
            }
            raw.push(byte);
            normal.push(char::from(byte));
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2).ok_or(PathError::Encoding)?;
        rest = tail;
        let byte = value(digits).ok_or(PathError::Encoding)?;
        raw.push(byte);
        match byte {
            b'/' | b'\\' if slash == EncodedSlash::Reject => return Err(PathError::Slash),
            b'/' | b'\\' if slash == EncodedSlash::Decode => normal.push('/'),
            _ if byte.is_ascii_control() => return Err(PathError::Character),
            _ if is_unreserved(byte) => normal.push(char::from(byte)),
            _ => encode(byte, &mut normal),
        }
    }
    std::str::from_utf8(&raw).map_err(|_| PathError::Character)?;
    Ok(normal)
}

/// Spells what [`decode`] made so that whatever origins take for the same is the same: no character is encoded that may
/// stand for itself in a segment, and every other is.
pub(super) fn encode_canonically(normal: &str) -> String {
    let mut spelt = String::with_capacity(normal.len());
    let mut rest = normal.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let byte = match tail.split_at_checked(2) {
            Some((digits, tail)) if byte == b'%' => {
                rest = tail;
                value(digits).unwrap_or(byte)
            }
            // A separator is one only where it is not encoded.
            _ if byte == b'/' => {
                spelt.push('/');
                continue;
            }
            _ => byte,
        };
        push(byte, &mut spelt);
    }
    spelt
}

/// Appends a byte of a segment in its one spelling.
pub(super) fn push(byte: u8, spelt: &mut String) {
    if needs_no_encoding(byte) {
        spelt.push(char::from(byte));
    } else {
        encode(byte, spelt);
    }
}

/// May it stand for itself in the name of a segment (RFC 3986 section 3.3)? A semicolon ends the name.
pub(super) const fn needs_no_encoding(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@')
}

/// RFC 3986 section 2.3.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn encode(byte: u8, text: &mut String) {
    text.push('%');
    text.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
    text.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
}

/// The byte that two digits stand for.
pub(super) fn value(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(*high)? << 4 | digit(*low)?)
}
