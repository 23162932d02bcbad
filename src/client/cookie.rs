//! Reads a cookie from the `Cookie` fields: `name=value` pairs, separated by semicolons (RFC 6265 section 5.4).
//!
//! Some origins also accept commas as separators (RFC 2965), percent-encoded names and values, and quoted values. Names in
//! another case are other cookies, which another service of the domain may set. Some origins ignore the case, so they count
//! in a request without the cookie.

use http::{HeaderMap, header};

use super::duplicates::{Duplicates, Values};
use super::spelling::{self, Name};
use super::{ClientError, Value};

/// Returns the value of the cookie with this name, decoded and normalized.
///
/// # Errors
/// The cookie is missing, sent with different values, or malformed.
pub(super) fn value<'f>(headers: &'f HeaderMap, name: &str, duplicates: Duplicates) -> Value<'f> {
    spelling::value(sent(headers, name, duplicates)?)
}

/// Returns the value of the cookie with this name as it was sent, without quotes.
///
/// # Errors
/// The cookie is missing, sent with different values, or malformed.
pub(super) fn sent<'f>(headers: &'f HeaderMap, name: &str, duplicates: Duplicates) -> Result<&'f [u8], ClientError> {
    let (mut values, mut other_case) = (Values::NONE, Values::NONE);
    let fields = headers.get_all(header::COOKIE).iter();
    for pair in fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';')) {
        for (index, part) in pair.split(|byte| *byte == b',').enumerate() {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (sent, value) = part.split_at(equals.unwrap_or(part.len()));
            let (found, name) = match self::name(sent, name) {
                Name::Other => continue,
                Name::OtherCase => (&mut other_case, Name::Same),
                name => (&mut values, name),
            };
            match name {
                Name::Same if index == 0 => found.add(spelling::trim(pair.get(sent.len() + 1..).unwrap_or(b""))),
                _ => found.add_ambiguous(spelling::trim(value.strip_prefix(b"=").unwrap_or(value))),
            }
        }
    }
    unquote(if values.is_empty() { other_case } else { values }.get(duplicates)?)
}

fn name(sent: &[u8], wanted: &str) -> Name {
    match spelling::decode(sent) {
        Ok(sent) => spelling::name(&sent, wanted),
        // Not an error: another service of the domain may have set a cookie with this name.
        Err(_) => spelling::name(sent, wanted),
    }
}

/// Removes the quotes around a value. Rejects a value with only one quote, because some origins cut off the last
/// character of every value that begins with a quote.
fn unquote(value: &[u8]) -> Result<&[u8], ClientError> {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let is_valid = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    if inner.iter().all(is_valid) { Ok(inner) } else { Err(ClientError::Malformed) }
}
