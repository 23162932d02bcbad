//! Reads configurations of nginx.

use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::{Place, Report};
use crate::sources::Input;

/// Returns `true` if a file has this format.
pub(crate) fn recognizes(_name: &str, _text: &str) -> bool {
    false
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed.
pub(crate) fn convert(input: &mut Input<'_>, _draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    for path in input.paths {
        let text = input.read(path)?;
        report.lost(&Place::start_of(text.name), "file", "the format is not supported yet");
    }
    Ok(())
}
