//! The value of a cookie (RFC 6265 section 5.4): `name=value` pairs, separated by semicolons.
//!
//! To some origins commas separate them too (RFC 2965), names and values are percent-encoded, and a value may stand in quotes.

use http::{HeaderMap, header};

use super::spelling::{self, Name};
use super::{NoClient, Value};

/// The one value of the cookie with this name.
///
/// # Errors
/// There is none, more than one, or one that is not written as cookies are.
pub(super) fn value<'f>(headers: &'f HeaderMap, name: &str) -> Value<'f> {
    let mut found = None;
    let fields = headers.get_all(header::COOKIE).iter();
    for pair in fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';')) {
        for (index, part) in pair.split(|byte| *byte == b',').enumerate() {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (sent, _) = part.split_at(equals.unwrap_or(part.len()));
            match self::name(sent, name) {
                Name::Other => {}
                Name::Same if index == 0 && found.is_none() => found = Some(pair.get(sent.len() + 1..).unwrap_or(b"")),
                Name::Same | Name::Indexed => return Err(NoClient::Ambiguous),
            }
        }
    }
    let value = bare(spelling::trim(found.ok_or(NoClient::Missing)?))?;
    spelling::value(value)
}

fn name(sent: &[u8], wanted: &str) -> Name {
    match spelling::decode(sent) {
        Ok(sent) => spelling::name(&sent, wanted),
        // Not encoded, then. Cookies of other services of the domain are no reason to refuse a request.
        Err(_) => spelling::name(sent, wanted),
    }
}

/// Without its quotes, if it has them on both sides; there are origins that cut off the last character of any value that
/// begins with one.
fn bare(value: &[u8]) -> Result<&[u8], NoClient> {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let is_written_so = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    if inner.iter().all(is_written_so) { Ok(inner) } else { Err(NoClient::Malformed) }
}
