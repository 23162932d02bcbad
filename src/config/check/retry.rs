//! The retries of an upstream.

use super::Checked;
use super::percent::percent;
use crate::config::file;
use crate::config::located::{Located, ValueOrMap};
use crate::config::problem::{Problems, quote};
use crate::upstream::settings::{RetryMode, RetryOn, RetrySettings};

/// Converts `retry` of an upstream. Returns `None` for `off`.
pub(super) fn retry(
    written: &Located<ValueOrMap<RetryMode, file::Retry>>,
    problems: &mut Problems,
) -> Checked<Option<RetrySettings>> {
    let default = RetrySettings::default();
    let written = match written.optional(problems)? {
        None => return Ok(Some(default)),
        Some(ValueOrMap::Value(RetryMode::Off)) => return Ok(None),
        Some(ValueOrMap::Map(written)) => written,
    };
    let on = match written.on.optional(problems)? {
        Some(list) => list.iter().map(|written| retry_on(written, problems)).collect::<Checked<_>>(),
        None => Ok(default.on),
    };
    let budget_percent = percent(&written.budget, default.budget_percent, problems);
    Ok(Some(RetrySettings {
        attempts: written.attempts.number(default.attempts, problems)?,
        on: on?,
        budget_percent: budget_percent?,
        body: written.body.size(default.body, problems)?,
    }))
}

fn retry_on(written: &Located<String>, problems: &mut Problems) -> Checked<RetryOn> {
    let text = written.required(problems)?;
    RetryOn::from_name(text).ok_or_else(|| {
        let names: Vec<_> = RetryOn::ALL.iter().map(|on| format!("`{}`", on.name())).collect();
        let message = format!("{} is not a failure after which requests are sent again", quote(text));
        written.report(message, format!("use {}", names.join(", ")), problems)
    })
}
