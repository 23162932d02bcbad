//! Checks `access_log`.

use std::path::Path;

use crate::check::Checked;
use crate::file::File;
use crate::file::located::Located;
use crate::problem::suggest::nearest;
use crate::problem::{Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use crate::values::access_log::{AccessLog, AccessLogDestination, Sample};

pub(crate) fn access_log(file: &File, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<AccessLog> {
    let Some(raw) = file.access_log.optional(problems)? else { return Ok(AccessLog::default()) };
    let destination = destination(&raw.path, files, problems);
    let format = raw.format.optional(problems)?.copied();
    let sample = raw.sample.optional(problems)?.map_or_else(Sample::default, |share| Sample::from_share(*share));
    Ok(AccessLog { destination: destination?, format, sample })
}

fn destination(
    raw: &Located<String>,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<AccessLogDestination> {
    let text = match raw.required(problems)?.as_str() {
        "off" => return Ok(AccessLogDestination::Off),
        "stdout" => return Ok(AccessLogDestination::Stdout),
        text => text,
    };
    // A bare word is probably a typo and not a file name.
    if text.contains(['/', '.']) {
        let path = files.path(text);
        if files.are_checked() {
            check_folder(&path, raw, problems)?;
        }
        return Ok(AccessLogDestination::File(path));
    }
    let help = match nearest(text, ["off", "stdout"]) {
        Some(word) => format!("did you mean {}?", quote(word)),
        None => format!("for a file with this name write {}", quote(&format!("./{text}"))),
    };
    let message = format!("`access_log` must be `off`, `stdout` or a path, not {}", quote(text));
    Err(raw.report(message, help, problems))
}

/// Reports an error if the folder of the access log does not exist. The gateway creates only the file.
fn check_folder(path: &Path, raw: &Located<String>, problems: &mut Problems) -> Checked<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Ok(());
    }
    let folder = quote(&folder.to_string_lossy());
    let help = "create the folder; a relative path starts at the folder of the rule file";
    Err(raw.report(format!("the folder of the access log, {folder}, does not exist"), help, problems))
}
