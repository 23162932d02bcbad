//! How requests are read: `requests`.

use crate::check::Checked;
use crate::file::File;
use crate::problem::Problems;
use tidegate_rules::rules::{BodyBytes, Requests};

pub(crate) fn requests(file: &File, problems: &mut Problems) -> Checked<Requests> {
    let Some(raw) = file.requests.optional(problems)? else { return Ok(Requests::default()) };
    Ok(Requests {
        encoded_slash: raw.encoded_slash.or_default(problems)?,
        slashes: raw.slashes.or_default(problems)?,
        request_id: raw.request_id.or_default(problems)?,
        body_bytes: BodyBytes(raw.json_bytes.size(BodyBytes::default().0, problems)?),
    })
}
