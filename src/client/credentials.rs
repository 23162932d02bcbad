//! Credentials (RFC 9110 section 11.4): a scheme in any case, blanks, and a token or parameters.

use std::borrow::Cow;

use super::{NoClient, Value, base64, spelling};

/// The one spelling of a field with credentials: `Bearer token`. A value without a scheme is what it is.
pub(super) fn spell(value: &[u8]) -> Value<'_> {
    let Some(end) = value.iter().position(|byte| matches!(byte, b' ' | b'\t')) else {
        return spelling::sound(Cow::Borrowed(value));
    };
    let (scheme, rest) = (&value[..end], spelling::trim(&value[end..]));
    check(scheme, rest)?;
    let token = match scheme.eq_ignore_ascii_case(b"basic") {
        true => base64::spell(Cow::Borrowed(rest))?,
        false => spelling::sound(Cow::Borrowed(rest))?,
    };
    let is_spelt =
        |(at, byte): (usize, &u8)| if at == 0 { !byte.is_ascii_lowercase() } else { !byte.is_ascii_uppercase() };
    if value[end + 1..] == *token && value[end] == b' ' && scheme.iter().enumerate().all(is_spelt) {
        return Ok(Cow::Borrowed(value));
    }
    let mut spelt = scheme.to_ascii_lowercase();
    spelt[..1].make_ascii_uppercase();
    spelt.push(b' ');
    spelt.extend_from_slice(&token);
    Ok(Cow::Owned(spelt))
}

/// Most origins take the word behind the scheme, whatever follows it.
fn check(scheme: &[u8], rest: &[u8]) -> Result<(), NoClient> {
    let mut words = rest.split(|byte| matches!(byte, b' ' | b'\t'));
    let first = words.next().unwrap_or_default();
    let is_token = words.next().is_none();
    let takes_a_token = [&b"basic"[..], b"bearer"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if is_token || (!takes_a_token && is_parameter(first)) { Ok(()) } else { Err(NoClient::Malformed) }
}

/// `name=value`, and no token with the padding of base64.
fn is_parameter(word: &[u8]) -> bool {
    let equals = word.iter().position(|byte| *byte == b'=');
    equals.is_some_and(|equals| equals > 0 && word.get(equals + 1).is_some_and(|byte| *byte != b'='))
}
