//! Writes the rule file and the files that it names.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidegate_convert::Conversion;

/// A file that is not written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}{help}", path = path.display())]
pub(super) struct OutputError {
    path: PathBuf,
    error: io::Error,
    help: &'static str,
}

/// Writes the rules to `file`, and the other files to its folder. Existing files are replaced only if `force`; without it, all
/// are checked before the first one is written.
///
/// # Errors
/// Fails if a file exists, or cannot be written.
pub(super) fn write(file: &Path, conversion: &Conversion, force: bool) -> Result<(), OutputError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let more = conversion.more_files.iter().map(|more| (folder.join(&more.name), more.text.as_str(), more.is_secret));
    let all: Vec<_> = more.chain([(file.to_owned(), conversion.rules.as_str(), false)]).collect();
    let existing = all.iter().find(|(path, ..)| !force && is_file(path));
    if let Some((path, ..)) = existing {
        return Err(OutputError::new(path, io::ErrorKind::AlreadyExists.into()));
    }
    for (path, text, is_secret) in &all {
        write_one(path, text, *is_secret, force).map_err(|error| OutputError::new(path, error))?;
    }
    Ok(())
}

/// Returns `true` for files that can be replaced: pipes and devices are always written to.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.is_symlink())
}

fn write_one(path: &Path, text: &str, is_secret: bool, force: bool) -> io::Result<()> {
    let is_special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let mode = if is_secret { 0o600 } else { 0o644 };
    let mut options = OpenOptions::new();
    options.write(true).mode(mode).truncate(force).create(force).create_new(!force && !is_special);
    options.open(path)?.write_all(text.as_bytes())
}

impl OutputError {
    fn new(path: &Path, error: io::Error) -> Self {
        let exists = error.kind() == io::ErrorKind::AlreadyExists;
        let help = if exists { "\nhelp: write to another file, or replace this one with --force" } else { "" };
        Self { path: path.to_owned(), error, help }
    }
}
