//! Percent-encoding of the forwarded and of the matched form of a path.

use percent_encoding::percent_encode_byte;

use super::{EncodedSlash, PathError};
use tidegate_limit::text::hex;

/// Decodes unreserved characters (RFC 3986 section 2.3), and keeps all others as received, with digits in upper case.
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
        let (digits, tail) = tail.split_first_chunk().ok_or(PathError::Encoding)?;
        rest = tail;
        let byte = hex::byte(*digits).ok_or(PathError::Encoding)?;
        raw.push(byte);
        match byte {
            b'/' | b'\\' if slash == EncodedSlash::Reject => return Err(PathError::Slash),
            b'/' | b'\\' if slash == EncodedSlash::Decode => normal.push('/'),
            _ if byte.is_ascii_control() => return Err(PathError::Character),
            _ if is_unreserved(byte) => normal.push(char::from(byte)),
            _ => normal.push_str(percent_encode_byte(byte)),
        }
    }
    std::str::from_utf8(&raw).map_err(|_| PathError::Character)?;
    Ok(normal)
}

/// Converts the result of [`decode`] to a unique encoding, so that paths that are equal to origins are equal. It
/// encodes exactly the characters that are not allowed in a segment.
pub(super) fn encode_canonically(normal: &str) -> String {
    let mut spelt = String::with_capacity(normal.len());
    let mut rest = normal.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let byte = match tail.split_first_chunk() {
            Some((digits, tail)) if byte == b'%' => {
                rest = tail;
                hex::byte(*digits).unwrap_or(byte)
            }
            // A slash is a separator only if it is not encoded.
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

/// Appends a byte of a segment in its unique encoding.
pub(super) fn push(byte: u8, spelt: &mut String) {
    if needs_no_encoding(byte) {
        spelt.push(char::from(byte));
    } else {
        spelt.push_str(percent_encode_byte(byte));
    }
}

/// Returns `true` if the byte needs no encoding in the name of a segment (RFC 3986 section 3.3). A semicolon ends the
/// name.
pub(super) const fn needs_no_encoding(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@')
}

/// Returns `true` for unreserved characters (RFC 3986 section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
