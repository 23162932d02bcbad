//! Normalizes base64 (RFC 4648). Lenient decoders accept many spellings of a value: they skip foreign characters and
//! unused bits, and accept both alphabets, with or without padding.

use std::borrow::Cow;

use super::{ClientError, Value};

/// Returns `true` if the token starts like base64 of JSON, such as a JSON web token or a sealed session.
pub(super) fn is_json(token: &[u8]) -> bool {
    token.starts_with(b"eyJ")
}

/// Converts base64 segments, separated by dots, to the URL-safe alphabet without padding.
///
/// # Errors
/// The token has other bytes, or unused bits that are not zero, which no encoder produces.
pub(super) fn normalize(token: Cow<'_, [u8]>) -> Value<'_> {
    if !token.split(|byte| *byte == b'.').all(is_valid) {
        return Err(ClientError::Malformed);
    }
    if !token.iter().any(|byte| matches!(byte, b'+' | b' ' | b'/' | b'=')) {
        return Ok(token);
    }
    let letter = |byte: &u8| match byte {
        b'+' | b' ' => b'-', // A plus in a query was decoded as a space.
        b'/' => b'_',
        byte => *byte,
    };
    Ok(Cow::Owned(token.iter().filter(|byte| **byte != b'=').map(letter).collect()))
}

fn is_valid(segment: &[u8]) -> bool {
    let end = segment.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (letters, last) = (&segment[..end], end.checked_sub(1).and_then(|last| value(segment[last])));
    let unused_bits = match letters.len() % 4 {
        0 => 0,
        2 => 0b1111,
        3 => 0b11,
        _ => return false,
    };
    letters.iter().all(|byte| value(*byte).is_some()) && last.unwrap_or(0) & unused_bits == 0
}

fn value(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'-' | b'+' | b' ' => 62,
        b'_' | b'/' => 63,
        _ => return None,
    })
}
