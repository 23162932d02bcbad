//! Regular expressions of values.

use crate::draft::value::{Map, Value};

/// The longest expression of the rule file, in bytes.
const MAX_REGEX: usize = 1_000;

/// Returns the condition that a value matches an expression as a whole.
pub(crate) fn whole(regex: &str) -> Option<Value> {
    contained(&format!("^(?:{regex})$"))
}

/// Returns the condition that an expression matches at any place of a value. Returns `None` if the rule file cannot have
/// this expression, for example because it looks back or ahead.
pub(crate) fn contained(regex: &str) -> Option<Value> {
    let is_valid = regex.len() <= MAX_REGEX && regex::Regex::new(regex).is_ok();
    is_valid.then(|| Map::of([("regex", regex.into())]).into())
}
