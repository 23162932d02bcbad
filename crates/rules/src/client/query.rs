//! Reads the value of a query parameter (`application/x-www-form-urlencoded`).
//!
//! A parameter next to a semicolon is ambiguous ([`pairs`]).

use super::duplicates::{Duplicates, Values};
use super::spelling::{self, Name};
use super::{ClientError, Value, pairs};

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
pub(super) fn decoded<'f>(query: &'f str, name: &str) -> Value<'f> {
    let value = spelling::decode(sent(query, name, Duplicates::Reject)?)?;
    if value.is_empty() { Err(ClientError::Missing) } else { Ok(value) }
}

fn sent<'f>(query: &'f str, name: &str, duplicates: Duplicates) -> Result<&'f [u8], ClientError> {
    let mut values = Values::NONE;
    for pair in pairs::parameters(query) {
        match spelling::name(&spelling::decode(pair.name)?, name) {
            Name::Other => {}
            Name::Same | Name::OtherCase if !pair.is_split => values.add(pair.value),
            _ => values.add_ambiguous(pair.value),
        }
    }
    values.get(duplicates)
}
