//! The retries of an upstream.

use super::Checked;
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
    let budget_percent = match written.budget.optional(problems)? {
        Some(text) => percent(text).ok_or_else(|| {
            let message = format!("{} is not a share", quote(text));
            written.budget.report(message, "use a whole number from 0% to 100%, such as `20%`", problems)
        }),
        None => Ok(default.budget_percent),
    };
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

/// Parses a whole number of percent.
fn percent(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|percent| *percent <= 100)
}
