//! The `rate` of a limit as the rule file contains it: a number, or the value of a request.

use crate::check::Checked;
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::Problems;

/// The `rate` of a limit in the rule file.
type RateKey = Located<ValueOrMap<u64, file::RateSource>>;

/// Returns a rate that does not depend on the request, and reports other rates.
pub(crate) fn fixed(raw: &RateKey, problems: &mut Problems) -> Checked<Option<u64>> {
    match raw.optional(problems)? {
        None => Ok(None),
        Some(ValueOrMap::Value(rate)) => Ok(Some(*rate)),
        Some(ValueOrMap::Map(_)) => {
            let message = "a `rate` with `by` cannot be used with `key`: all programs must know the rate";
            Err(raw.report(message, "write a number", problems))
        }
    }
}

/// Returns the rate, or the default of a rate that depends on the request.
pub(super) fn default_of(raw: &RateKey) -> Option<u64> {
    match raw.get()? {
        ValueOrMap::Value(rate) => Some(*rate),
        ValueOrMap::Map(source) => source.default.get().copied(),
    }
}
