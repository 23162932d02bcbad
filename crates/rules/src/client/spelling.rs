//! Normalizes names and values in the ways of lenient origin servers: spaces, percent-encoding, and similar names.

use std::borrow::Cow;

use super::{ClientError, Value, base64};
use tidegate_limit::text::hex;

/// How a name compares with the configured name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A different name.
    Other,
    /// The same name.
    Same,
    /// The same name in another case.
    OtherCase,
    /// A list or a map of that name, as PHP, Rack and Express read `name[]`.
    Indexed,
}

/// Trims whitespace: of ASCII, and of Latin-1, because many servers decode fields as Latin-1.
pub fn trim(mut text: &[u8]) -> &[u8] {
    let is_whitespace = |byte: u8| matches!(byte, b'\t'..=b'\r' | 0x1c..=b' ' | 0x85 | 0xa0);
    while let Some((_, rest)) = text.split_first().filter(|(first, _)| is_whitespace(**first)) {
        text = rest;
    }
    while let Some((_, rest)) = text.split_last().filter(|(last, _)| is_whitespace(**last)) {
        text = rest;
    }
    text
}

/// Decodes percent-encoding, and a plus as a space. Some origins do not decode a plus: for them, `a+b` and `a%20b` are
/// two clients that share a bucket, which admits no additional requests.
pub fn decode(text: &[u8]) -> Value<'_> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (digits, tail) = tail.split_first_chunk().ok_or(ClientError::Malformed)?;
                rest = tail;
                hex::byte(*digits).ok_or(ClientError::Malformed)?
            }
            byte => byte,
        });
    }
    Ok(Cow::Owned(decoded))
}

/// Decodes and trims a value. Rejects control characters, at which some origins truncate a text.
pub(super) fn value(text: &[u8]) -> Value<'_> {
    match decode(text)? {
        Cow::Borrowed(text) => checked(Cow::Borrowed(trim(text))),
        Cow::Owned(text) => {
            let trimmed = match std::str::from_utf8(&text) {
                Ok(text) => trim(text.trim().as_bytes()),
                Err(_) => trim(&text),
            };
            checked(Cow::Owned(trimmed.to_vec()))
        }
    }
}

/// Rejects an empty value or control characters, and normalizes a base64 token.
pub(super) fn checked(value: Cow<'_, [u8]>) -> Value<'_> {
    match () {
        () if value.is_empty() => Err(ClientError::Missing),
        () if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') => Err(ClientError::Malformed),
        () if base64::is_json(&value) => base64::normalize(value),
        () => Ok(value),
    }
}

/// Returns `true` if some origins treat a decoded name as the configured name, or as a list or a map of that name.
pub fn resembles(sent: &[u8], wanted: &str) -> bool {
    name(sent, wanted) != Name::Other
}

/// Compares a decoded name with the configured one: ASP.NET ignores the case, PHP writes an underscore for characters
/// that a variable cannot have, and C programs stop at a NUL.
pub fn name(sent: &[u8], wanted: &str) -> Name {
    let sent = sent.split(|byte| *byte == 0).next().unwrap_or_default();
    let (sent, wanted) = (trim(sent), wanted.as_bytes());
    let fold = |byte: &u8| if matches!(byte, b'.' | b' ' | b'[' | b'+') { b'_' } else { *byte };
    let fold_case = |byte: &u8| fold(byte).to_ascii_lowercase();
    let Some((start, rest)) = sent.split_at_checked(wanted.len()) else { return Name::Other };
    match rest.first() {
        _ if !start.iter().map(fold_case).eq(wanted.iter().map(fold_case)) => Name::Other,
        None if !start.iter().map(fold).eq(wanted.iter().map(fold)) => Name::OtherCase,
        None => Name::Same,
        Some(b'[') => Name::Indexed,
        Some(_) => Name::Other,
    }
}
