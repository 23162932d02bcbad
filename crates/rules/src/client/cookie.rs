//! Reads a cookie from the `Cookie` fields.
//!
//! Some origins also accept percent-encoded names and values, and quoted values. Names in another case are other cookies,
//! which another service of the domain may set. Some origins ignore the case, so they count in a request without the
//! cookie.

use http::HeaderMap;

use super::duplicates::{Duplicates, Values};
use super::spelling::{self, Name};
use super::{ClientError, Value, pairs};

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
    for pair in pairs::cookies(headers) {
        let (found, name) = match self::name(pair.name, name) {
            Name::Other => continue,
            Name::OtherCase => (&mut other_case, Name::Same),
            name => (&mut values, name),
        };
        match name {
            Name::Same if pair.is_first => {
                found.add(spelling::trim(pair.whole.get(pair.name.len() + 1..).unwrap_or_default()));
            }
            _ => found.add_ambiguous(spelling::trim(pair.value)),
        }
    }
    unquote(if values.is_empty() { other_case } else { values }.get(duplicates)?)
}

/// Compares the name of a cookie with the configured one.
pub fn name(sent: &[u8], wanted: &str) -> Name {
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
