//! Reads the small files that a rule file names: certificates, keys, passwords.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The longest of them, in bytes. A bundle of all public authorities has a fifth of it.
const MAX_BYTES: u64 = 1 << 20;

/// Why such a file gives nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotRead {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error("is longer than 1 MiB")]
    TooLong,
}

/// What a regular file holds. A device or a pipe is not opened: it may have no end, or nothing to read for as long as nobody
/// writes. Of a file that grows no more is read than it takes to see that it is too long.
///
/// # Errors
/// See [`CannotRead`].
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>, CannotRead> {
    let about = fs::metadata(path)?;
    // To read a folder is an error that says what it is.
    if !about.is_file() && !about.is_dir() {
        return Err(CannotRead::NotAFile);
    }
    if about.is_file() && about.len() > MAX_BYTES {
        return Err(CannotRead::TooLong);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES { Err(CannotRead::TooLong) } else { Ok(bytes) }
}

// === impl CannotRead ===

impl CannotRead {
    /// Whether nothing is there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable(error) if error.kind() == io::ErrorKind::NotFound)
    }
}
