//! Reads the small files that a rule file names: certificates, keys, passwords.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
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
    /// Returns what to do about the error, or `None` if the file was readable.
    pub(crate) fn help(&self, path: &Path) -> Option<String> {
        match self {
            Self::Unreadable(error) => match error.kind() {
                io::ErrorKind::NotFound => Some("a relative path starts at the folder of the rule file".to_owned()),
                io::ErrorKind::PermissionDenied => Some(permissions(path)),
                _ => None,
            },
            Self::NotAFile | Self::TooLong => Some("name a regular file of at most 1 MiB".to_owned()),
        }
    }
}

/// Describes which user may not read the file, and why.
fn permissions(path: &Path) -> String {
    let runs_as = user().map_or_else(String::new, |uid| format!("the gateway runs as uid {uid}, and "));
    match fs::metadata(path) {
        Ok(about) => {
            let (mode, uid, gid) = (about.mode() & 0o7777, about.uid(), about.gid());
            format!("{runs_as}the file has mode {mode:04o}, uid {uid} and gid {gid}: allow that user to read it")
        }
        Err(_) => format!("{runs_as}a folder on the way to the file does not let that user in"),
    }
}

/// Returns the user that this process runs as, or `None` on systems without `/proc`.
fn user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn unreadable_file_is_reported_with_user_and_mode() {
        let path = std::env::temp_dir().join(format!("tidegate-unreadable-{}.key", std::process::id()));
        fs::write(&path, "x").expect("a temporary file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a file that belongs to this process");
        let help = CannotRead::Unreadable(io::ErrorKind::PermissionDenied.into()).help(&path).expect("a help");
        fs::remove_file(&path).expect("the temporary file");
        assert!(help.contains("the file has mode 0600, uid "), "{help}");
    }
}
