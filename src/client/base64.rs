//! Base64 (RFC 4648), of which generous decoders take any number of spellings for one: they skip what does not belong
//! there, and bits that are left over; they take both alphabets, with padding and without.

use std::borrow::Cow;

use super::{NoClient, Value};

/// Whether it is what the base64 of JSON begins with: a JSON web token, a sealed session.
pub(super) fn is_json(token: &[u8]) -> bool {
    token.starts_with(b"eyJ")
}

/// Segments of base64 with dots between them, in the alphabet for URLs and without padding.
///
/// # Errors
/// It has other bytes, or bits left over, which no encoder makes.
pub(super) fn spell(token: Cow<'_, [u8]>) -> Value<'_> {
    if !token.split(|byte| *byte == b'.').all(is_sound) {
        return Err(NoClient::Malformed);
    }
    if !token.iter().any(|byte| matches!(byte, b'+' | b' ' | b'/' | b'=')) {
        return Ok(token);
    }
    let letter = |byte: &u8| match byte {
        b'+' | b' ' => b'-', // a plus in a query is a blank
        b'/' => b'_',
        byte => *byte,
    };
    Ok(Cow::Owned(token.iter().filter(|byte| **byte != b'=').map(letter).collect()))
}

fn is_sound(segment: &[u8]) -> bool {
    let end = segment.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (letters, last) = (&segment[..end], end.checked_sub(1).and_then(|last| value(segment[last])));
    let spare = match letters.len() % 4 {
        0 => 0,
        2 => 0b1111,
        3 => 0b11,
        _ => return false,
    };
    letters.iter().all(|byte| value(*byte).is_some()) && last.unwrap_or(0) & spare == 0
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
