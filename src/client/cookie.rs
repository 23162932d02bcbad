//! Reads a cookie from the `Cookie` fields: `name=value` pairs, separated by semicolons (RFC 6265 section 5.4).
//!
//! Some origins also accept commas as separators (RFC 2965), percent-encoded names and values, and quoted values.

use http::{HeaderMap, header};

use super::spelling::{self, Name};
use super::{ClientError, Value};

/// Returns the value of the only cookie with this name, decoded and normalized.
///
/// # Errors
/// The cookie is missing, sent more than once, or malformed.
pub(super) fn value<'f>(headers: &'f HeaderMap, name: &str) -> Value<'f> {
    spelling::value(sent(headers, name)?)
}

/// Returns the value of the only cookie with this name as it was sent, without quotes.
///
/// # Errors
/// The cookie is missing, sent more than once, or malformed.
pub(super) fn sent<'f>(headers: &'f HeaderMap, name: &str) -> Result<&'f [u8], ClientError> {
    let mut found = None;
    let fields = headers.get_all(header::COOKIE).iter();
    for pair in fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';')) {
        for (index, part) in pair.split(|byte| *byte == b',').enumerate() {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (sent, _) = part.split_at(equals.unwrap_or(part.len()));
            match self::name(sent, name) {
                Name::Other => {}
                Name::Same if index == 0 && found.is_none() => found = Some(pair.get(sent.len() + 1..).unwrap_or(b"")),
                Name::Same | Name::Indexed => return Err(ClientError::Ambiguous),
            }
        }
    }
    unquote(spelling::trim(found.ok_or(ClientError::Missing)?))
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
