//! How requests are read: `requests`.

use super::Checked;
use crate::file::File;
use crate::problem::Problems;
use tidegate_rules::rules::Requests;

pub(super) fn requests(file: &File, problems: &mut Problems) -> Checked<Requests> {
    let Some(raw) = file.requests.optional(problems)? else { return Ok(Requests::default()) };
    let encoded_slash = raw.encoded_slash.optional(problems);
    let slashes = raw.slashes.optional(problems);
    let request_id = raw.request_id.optional(problems)?.copied().unwrap_or_default();
    let encoded_slash = encoded_slash?.copied().unwrap_or_default();
    Ok(Requests { encoded_slash, slashes: slashes?.copied().unwrap_or_default(), request_id })
}
