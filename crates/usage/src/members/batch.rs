//! The elements of an array of calls.

use std::sync::Arc;

use super::MembersError;
use crate::json::{Field, Pointers, Scanner, Sink, Value};

/// The most calls of a batch.
pub const MAX_CALLS: usize = 100;

/// The offsets of the elements of an array.
struct Starts(Vec<usize>);

impl Sink for Starts {
    fn value(&mut self, _: Field, _: Value<'_>, at: u64) {
        // More would not be used.
        if self.0.len() <= MAX_CALLS {
            self.0.extend(usize::try_from(at));
        }
    }

    fn text(&mut self, _: Field, _: usize) {}
}

/// Returns the elements of an array. Returns nothing for other values, and for an empty array. `text` is valid JSON, without
/// space around it.
pub(super) fn elements(text: &[u8]) -> Result<Vec<&[u8]>, MembersError> {
    let Some(inner) = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")) else { return Ok(Vec::new()) };
    let pointers = Pointers::default().value("/*", Field(0)).map_err(|_| MembersError::NotJson)?;
    let mut starts = Starts(Vec::new());
    let scanned = Scanner::new(Arc::new(pointers)).push(text, &mut starts);
    scanned.map_err(|_| MembersError::NotJson)?;
    if starts.0.len() > MAX_CALLS {
        return Err(MembersError::TooManyCalls);
    }
    let ends = starts.0.iter().skip(1).copied().chain([inner.len() + 1]);
    let element = |(start, end): (&usize, usize)| {
        let element = text.get(*start..end).unwrap_or_default().trim_ascii_end();
        element.strip_suffix(b",").unwrap_or(element).trim_ascii_end()
    };
    Ok(starts.0.iter().zip(ends).map(element).collect())
}
