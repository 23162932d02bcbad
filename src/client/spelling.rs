//! What values of all kinds have in common: blanks around them, percent-encoding, names that origins read generously.

use std::borrow::Cow;

use super::{NoClient, Value, base64};

/// How a name reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// As another name.
    Other,
    /// As the name.
    Same,
    /// As the name of a list or a map, as `name[]` does to PHP, Rack and Express.
    Indexed,
}

/// Without blanks at its ends: those of ASCII, and those that languages take for blanks in Latin-1, which is how many
/// read fields.
pub(super) fn trim(mut text: &[u8]) -> &[u8] {
    let is_blank = |byte: u8| matches!(byte, b'\t'..=b'\r' | 0x1c..=b' ' | 0x85 | 0xa0);
    while let Some((_, rest)) = text.split_first().filter(|(first, _)| is_blank(**first)) {
        text = rest;
    }
    while let Some((_, rest)) = text.split_last().filter(|(last, _)| is_blank(**last)) {
        text = rest;
    }
    text
}

/// Percent-encoding undone, and a plus for a blank: some origins read it so, and to the others no client's value is
/// another's with blanks in it.
pub(super) fn decode(text: &[u8]) -> Value<'_> {
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
                let (digits, tail) = tail.split_at_checked(2).ok_or(NoClient::Malformed)?;
                rest = tail;
                digit(digits[0])? << 4 | digit(digits[1])?
            }
            byte => byte,
        });
    }
    Ok(Cow::Owned(decoded))
}

fn digit(byte: u8) -> Result<u8, NoClient> {
    let value = char::from(byte).to_digit(16).ok_or(NoClient::Malformed)?;
    u8::try_from(value).map_err(|_| NoClient::Malformed)
}

/// What is behind the encoding: without blanks at its ends, and without what origins cut a text off at.
pub(super) fn value(text: &[u8]) -> Value<'_> {
    match decode(text)? {
        Cow::Borrowed(text) => sound(Cow::Borrowed(trim(text))),
        Cow::Owned(text) => {
            let trimmed = match std::str::from_utf8(&text) {
                Ok(text) => trim(text.trim().as_bytes()),
                Err(_) => trim(&text),
            };
            sound(Cow::Owned(trimmed.to_vec()))
        }
    }
}

/// A value that is there; a token in the one spelling of its own.
pub(super) fn sound(value: Cow<'_, [u8]>) -> Value<'_> {
    match () {
        () if value.is_empty() => Err(NoClient::Missing),
        () if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') => Err(NoClient::Malformed),
        () if base64::is_json(&value) => base64::spell(value),
        () => Ok(value),
    }
}

/// How a name that was decoded reads beside the one that is looked for: to ASP.NET in any case, to PHP with an underscore
/// for what a variable cannot have, to C up to a NUL.
pub(super) fn name(sent: &[u8], wanted: &str) -> Name {
    let sent = sent.split(|byte| *byte == 0).next().unwrap_or_default();
    let (sent, wanted) = (trim(sent), wanted.as_bytes());
    let fold = |byte: &u8| match byte {
        b'.' | b' ' | b'[' | b'+' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    let Some((start, rest)) = sent.split_at_checked(wanted.len()) else { return Name::Other };
    match rest.first() {
        _ if !start.iter().map(fold).eq(wanted.iter().map(fold)) => Name::Other,
        None => Name::Same,
        Some(b'[') => Name::Indexed,
        Some(_) => Name::Other,
    }
}
