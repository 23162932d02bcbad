//! The retries of an upstream.

use super::percent::percent;
use crate::check::{Checked, all};
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Problems, quote};
use tidegate_rules::settings::upstream::{RetryMode, RetryOn, RetrySettings};

/// Converts `retry` of an upstream. Returns `None` for `off`.
pub(crate) fn retry(
    raw: &Located<ValueOrMap<RetryMode, file::Retry>>,
    problems: &mut Problems,
) -> Checked<Option<RetrySettings>> {
    let default = RetrySettings::default();
    let raw = match raw.optional(problems)? {
        None => return Ok(Some(default)),
        Some(ValueOrMap::Value(RetryMode::Off)) => return Ok(None),
        Some(ValueOrMap::Map(raw)) => raw,
    };
    let on = raw.on.optional(problems)?;
    let on = on.map_or(Ok(default.on), |list| all(list.iter().map(|raw| retry_on(raw, problems))));
    let budget_percent = percent(&raw.budget, default.budget_percent, problems);
    Ok(Some(RetrySettings {
        attempts: raw.attempts.number(default.attempts, problems)?,
        on: on?,
        budget_percent: budget_percent?,
        body: raw.body.size(default.body, problems)?,
    }))
}

fn retry_on(raw: &Located<String>, problems: &mut Problems) -> Checked<RetryOn> {
    let text = raw.required(problems)?;
    RetryOn::from_name(text).ok_or_else(|| {
        let names: Vec<_> = RetryOn::ALL.iter().map(|on| format!("`{}`", on.name())).collect();
        let message = format!("{} is not a failure after which requests are sent again", quote(text));
        raw.report(message, format!("use {}", names.join(", ")), problems)
    })
}
