//! Reads the value of a query parameter (`application/x-www-form-urlencoded`).
//!
//! For some origins a semicolon separates parameters, for others it is data. A parameter next to a semicolon is
//! therefore ambiguous.

use std::borrow::Cow;

use super::spelling::{self, Name};
use super::{ClientError, Value};

/// Returns the value of the only parameter with this name, decoded and normalized.
///
/// # Errors
/// The parameter is missing or sent more than once, or a percent-encoding in a name or in the value is invalid.
pub(super) fn value<'f>(query: &'f str, name: &str) -> Value<'f> {
    spelling::value(sent(query, name)?)
}

/// Returns the value of the only parameter with this name, decoded.
///
/// # Errors
/// The parameter is missing, empty or sent more than once, or a percent-encoding in a name or in the value is invalid.
#[cfg(feature = "gateway")]
pub(super) fn decoded<'f>(query: &'f str, name: &str) -> Value<'f> {
    let value = spelling::decode(sent(query, name)?)?;
    if value.is_empty() { Err(ClientError::Missing) } else { Ok(value) }
}

fn sent<'f>(query: &'f str, name: &str) -> Result<&'f [u8], ClientError> {
    let mut found = None;
    for pair in query.as_bytes().split(|byte| *byte == b'&') {
        let mut subpairs = pair.split(|byte| *byte == b';');
        let first = subpairs.next().unwrap_or_default();
        let is_split = first.len() < pair.len();
        for (index, part) in std::iter::once(first).chain(subpairs).enumerate() {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (sent, value) = part.split_at(equals.unwrap_or(part.len()));
            match self::name(sent, name)? {
                Name::Other => {}
                Name::Same if !is_split && index == 0 && found.is_none() => found = Some(value),
                Name::Same | Name::Indexed => return Err(ClientError::Ambiguous),
            }
        }
    }
    let value = found.ok_or(ClientError::Missing)?;
    Ok(value.strip_prefix(b"=").unwrap_or(value))
}

fn name(sent: &[u8], wanted: &str) -> Result<Name, ClientError> {
    let sent: Cow<'_, [u8]> = spelling::decode(sent)?;
    Ok(spelling::name(&sent, wanted))
}
