//! The value of a query parameter (`application/x-www-form-urlencoded`).
//!
//! A semicolon separates parameters to some origins and is data to others: beside the parameter that is looked for it is
//! ambiguous.

use std::borrow::Cow;

use super::spelling::{self, Name};
use super::{NoClient, Value};

/// The one value of the parameter with this name.
///
/// # Errors
/// There is none, more than one, or a broken percent-encoding in a name or in the value.
pub(super) fn value<'f>(query: &'f str, name: &str) -> Value<'f> {
    let mut found = None;
    for pair in query.as_bytes().split(|byte| *byte == b'&') {
        let mut parts = pair.split(|byte| *byte == b';');
        let first = parts.next().unwrap_or_default();
        let is_split = first.len() < pair.len();
        for (index, part) in std::iter::once(first).chain(parts).enumerate() {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (sent, value) = part.split_at(equals.unwrap_or(part.len()));
            match self::name(sent, name)? {
                Name::Other => {}
                Name::Same if !is_split && index == 0 && found.is_none() => found = Some(value),
                Name::Same | Name::Indexed => return Err(NoClient::Ambiguous),
            }
        }
    }
    let value = found.ok_or(NoClient::Missing)?;
    spelling::value(value.strip_prefix(b"=").unwrap_or(value))
}

fn name(sent: &[u8], wanted: &str) -> Result<Name, NoClient> {
    let sent: Cow<'_, [u8]> = spelling::decode(sent)?;
    Ok(spelling::name(&sent, wanted))
}
