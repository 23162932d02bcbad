//! Reads the value of a query parameter (`application/x-www-form-urlencoded`).
//!
//! For some origins a semicolon separates parameters, for others it is data. A parameter next to a semicolon is
//! therefore ambiguous.

use std::borrow::Cow;

use super::duplicates::{Duplicates, Values};
use super::spelling::{self, Name};
use super::{ClientError, Value};

/// Returns the value of the parameter with this name, decoded and normalized.
///
/// # Errors
/// The parameter is missing or sent with different values, or a percent-encoding in a name or in the value is invalid.
pub(super) fn value<'f>(query: &'f str, name: &str, duplicates: Duplicates) -> Value<'f> {
    spelling::value(sent(query, name, duplicates)?)
}

/// Returns the value of the parameter with this name, decoded.
///
/// # Errors
/// The parameter is missing, empty or sent with different values, or a percent-encoding in a name or in the value is
/// invalid.
#[cfg(feature = "gateway")]
pub(super) fn decoded<'f>(query: &'f str, name: &str) -> Value<'f> {
    let value = spelling::decode(sent(query, name, Duplicates::Reject)?)?;
    if value.is_empty() { Err(ClientError::Missing) } else { Ok(value) }
}

fn sent<'f>(query: &'f str, name: &str, duplicates: Duplicates) -> Result<&'f [u8], ClientError> {
    let mut values = Values::NONE;
    for pair in query.as_bytes().split(|byte| *byte == b'&') {
        let mut subpairs = pair.split(|byte| *byte == b';');
        let first = subpairs.next().unwrap_or_default();
        let is_split = first.len() < pair.len();
        for (index, part) in std::iter::once(first).chain(subpairs).enumerate() {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (sent, value) = part.split_at(equals.unwrap_or(part.len()));
            let value = value.strip_prefix(b"=").unwrap_or(value);
            match self::name(sent, name)? {
                Name::Other => {}
                Name::Same | Name::OtherCase if !is_split && index == 0 => values.add(value),
                _ => values.add_ambiguous(value),
            }
        }
    }
    values.get(duplicates)
}

fn name(sent: &[u8], wanted: &str) -> Result<Name, ClientError> {
    let sent: Cow<'_, [u8]> = spelling::decode(sent)?;
    Ok(spelling::name(&sent, wanted))
}
