//! Normalizes credentials (RFC 9110 section 11.4): a scheme in any case, spaces, and a token or parameters.

use std::borrow::Cow;

use super::{ClientError, Value, base64, spelling};

/// Normalizes a field with credentials to the form `Bearer token`. A value without a scheme does not change.
pub(super) fn normalize(value: &[u8]) -> Value<'_> {
    let (scheme, rest) = split_scheme(value);
    if rest.is_empty() {
        return spelling::checked(Cow::Borrowed(value));
    }
    let end = scheme.len();
    check_token(scheme, rest)?;
    let token = match scheme.eq_ignore_ascii_case(b"basic") {
        true => base64::normalize(Cow::Borrowed(rest))?,
        false => spelling::checked(Cow::Borrowed(rest))?,
    };
    let is_normalized =
        |(at, byte): (usize, &u8)| if at == 0 { !byte.is_ascii_lowercase() } else { !byte.is_ascii_uppercase() };
    if value[end + 1..] == *token && value[end] == b' ' && scheme.iter().enumerate().all(is_normalized) {
        return Ok(Cow::Borrowed(value));
    }
    let mut normalized = scheme.to_ascii_lowercase();
    normalized[..1].make_ascii_uppercase();
    normalized.push(b' ');
    normalized.extend_from_slice(&token);
    Ok(Cow::Owned(normalized))
}

/// Splits a trimmed value at the first space. Without a space, the rest is empty.
pub(super) fn split_scheme(value: &[u8]) -> (&[u8], &[u8]) {
    let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    (scheme, spelling::trim(rest))
}

/// Rejects text after a token: most origins ignore it, so that it would make one client look like many.
fn check_token(scheme: &[u8], rest: &[u8]) -> Result<(), ClientError> {
    let mut words = rest.split(|byte| matches!(byte, b' ' | b'\t'));
    let first = words.next().unwrap_or_default();
    let is_token = words.next().is_none();
    let requires_token = [&b"basic"[..], b"bearer"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if is_token || (!requires_token && is_parameter(first)) { Ok(()) } else { Err(ClientError::Malformed) }
}

/// Returns `true` for `name=value`, but not for a token with base64 padding.
fn is_parameter(word: &[u8]) -> bool {
    let equals = word.iter().position(|byte| *byte == b'=');
    equals.is_some_and(|equals| equals > 0 && word.get(equals + 1).is_some_and(|byte| *byte != b'='))
}
