//! Shares in percent.

use crate::check::Checked;
use crate::file::located::Located;
use crate::problem::{Problems, quote};

/// Converts a share such as `20%`: a whole number from 0 to 100.
pub(crate) fn percent(raw: &Located<String>, default: u8, problems: &mut Problems) -> Checked<u8> {
    let Some(text) = raw.optional(problems)? else { return Ok(default) };
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let percent = digits.and_then(|digits| digits.parse().ok()).filter(|percent| *percent <= 100);
    percent.ok_or_else(|| {
        let message = format!("{} is not a share", quote(text));
        raw.report(message, "use a whole number from 0% to 100%, such as `20%`", problems)
    })
}
