//! Files with a checksum, which only the owner can read. They are replaced atomically.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidegate_rules::settings::files::read_at_most;

/// A larger file is invalid: 64 MiB.
const MAX_BYTES: u64 = 64 << 20;
/// Only the owner reads and writes the file.
pub(super) const MODE: u32 = 0o600;

/// Reads the JSON of a file. Returns `None` if the file does not exist.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    if !path.try_exists()? {
        return Ok(None);
    }
    let damaged = |message: &str| io::Error::new(ErrorKind::InvalidData, message.to_owned());
    let bytes = read_at_most(path, MAX_BYTES).map_err(io::Error::other)?;
    let mut text = String::from_utf8(bytes).map_err(|_| damaged("the file is not UTF-8"))?;
    let (checksum, json) = text.split_once('\n').ok_or_else(|| damaged("the file has no checksum"))?;
    if blake3::hash(json.as_bytes()).to_hex().as_str() != checksum {
        return Err(damaged("the checksum does not match"));
    }
    let start = checksum.len() + 1;
    Ok(Some(text.split_off(start)))
}

/// Replaces the file atomically.
///
/// # Errors
/// The file cannot be written. The previous file stays.
pub(super) fn replace(path: &Path, json: &str) -> io::Result<()> {
    // A draining gateway may write at the same time as its successor.
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = write_new(&temporary, json).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, json: &str) -> io::Result<()> {
    _ = fs::remove_file(path); // of an earlier process with the same id, perhaps with another mode
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    writeln!(file, "{}", blake3::hash(json.as_bytes()).to_hex())?;
    file.write_all(json.as_bytes())?;
    file.sync_all()
}
