//! The files of a conversion in the file system.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use tidegate_convert::{Files, MAX_FILE_BYTES, ReadError, glob};

/// The most files and folders that a pattern may look at.
const MAX_LISTED: usize = 10_000;

/// The file system, read only. `-` is standard input.
#[derive(Debug, Default)]
pub(super) struct LocalFiles {}

impl Files for LocalFiles {
    fn read(&self, path: &Path) -> Result<String, ReadError> {
        if path == Path::new("-") {
            return read_text(io::stdin().lock());
        }
        let file = File::open(path).map_err(failed)?;
        // A folder or a device is not read: a pipe of a shell is.
        match file.metadata().map_err(failed)?.is_dir() {
            true => Err(ReadError::Failed("is a folder".to_owned())),
            false => read_text(file),
        }
    }

    fn list(&self, pattern: &Path) -> Result<Vec<PathBuf>, ReadError> {
        let mut paths = vec![PathBuf::new()];
        let mut listed = 0;
        for component in pattern.components() {
            let mut next = Vec::new();
            for path in &paths {
                list_step(path, component, &mut next, &mut listed)?;
            }
            paths = next;
        }
        paths.retain(|path| path.is_file());
        paths.sort();
        Ok(paths)
    }
}

/// Adds the paths below `path` that match the next component of a pattern.
fn list_step(
    path: &Path,
    component: Component<'_>,
    next: &mut Vec<PathBuf>,
    listed: &mut usize,
) -> Result<(), ReadError> {
    let name = component.as_os_str().to_string_lossy();
    if !matches!(component, Component::Normal(_)) || !glob::is_pattern(&name) {
        next.push(path.join(component));
        return Ok(());
    }
    let folder = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // As in a shell, a missing folder has no matches.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        *listed += 1;
        if *listed > MAX_LISTED {
            return Err(ReadError::Failed(format!("the folders of the pattern have more than {MAX_LISTED} files")));
        }
        let entry = entry.map_err(failed)?.file_name();
        if glob::matches(&name, &entry.to_string_lossy()) {
            next.push(path.join(entry));
        }
    }
    Ok(())
}

fn read_text(source: impl Read) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ReadError::TooLong);
    }
    String::from_utf8(bytes).map_err(|_| ReadError::NotText)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::NotFound => ReadError::Missing,
        _ => ReadError::Failed(error.to_string()),
    }
}
