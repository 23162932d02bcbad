//! Reads the small files that a rule file refers to: certificates, keys, passwords.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::watch::read_detached;

/// Maximum size of a file. A bundle of all public certificate authorities needs a fifth of it.
const MAX_BYTES: u64 = 1 << 20;

/// The longest time to read a file.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Error while reading a file.
#[derive(Debug, thiserror::Error)]
pub enum FileReadError {
    /// The file system reports this error.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a device, a pipe or a folder.
    #[error("is not a regular file")]
    NotAFile,
    /// It has more bytes than this.
    #[error("is longer than {} MiB", .0 >> 20)]
    TooLong(u64),
}

/// A file that cannot be used for TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {fault}", path.display())]
pub struct TlsFileError {
    /// The key of the rule file that names the file.
    pub key: &'static str,
    path: PathBuf,
    fault: String,
    /// How to correct the error.
    pub help: Cow<'static, str>,
}

/// A file, and the key of the rule file that names it.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredFile<'p> {
    /// The key.
    pub key: &'static str,
    /// The path, relative to the working directory or absolute.
    pub path: &'p Path,
}

/// Reads a regular file of at most 1 MiB.
///
/// Devices and pipes are never opened, because a read from them may block or never end. The read itself is bounded, too,
/// in case the file grows or its file system hangs.
///
/// # Errors
/// See [`FileReadError`].
pub fn read_bounded(path: &Path) -> Result<Vec<u8>, FileReadError> {
    read_at_most(path, MAX_BYTES)
}

/// Reads a regular file of at most `max` bytes, a number of MiB, as [`read_bounded`] does.
///
/// # Errors
/// See [`FileReadError`].
pub fn read_at_most(path: &Path, max: u64) -> Result<Vec<u8>, FileReadError> {
    let bytes = read_regular(path, max + 1)?;
    if bytes.len() as u64 > max { Err(FileReadError::TooLong(max)) } else { Ok(bytes) }
}

/// Reads the first `limit` bytes of a regular file.
///
/// # Errors
/// See [`FileReadError`].
pub fn read_regular(path: &Path, limit: u64) -> Result<Vec<u8>, FileReadError> {
    let path = path.to_owned();
    read_detached(MAX_TIME, move || {
        let (file, length) = open_regular(&path)?;
        // Without a capacity, a large file needs three times its size while it is read.
        let mut bytes = Vec::with_capacity(usize::try_from(length.min(limit)).unwrap_or_default());
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    })?
}

/// Opens a regular file. Returns it with its length. A folder can be opened, and its reads fail with an error that names
/// the reason.
///
/// # Errors
/// See [`FileReadError`].
pub fn open_regular(path: &Path) -> Result<(File, u64), FileReadError> {
    let is_regular = |metadata: &fs::Metadata| metadata.is_file() || metadata.is_dir();
    if !is_regular(&fs::metadata(path)?) {
        return Err(FileReadError::NotAFile);
    }
    let file = File::open(path)?;
    // The path may have been replaced since.
    let metadata = file.metadata()?;
    if is_regular(&metadata) { Ok((file, metadata.len())) } else { Err(FileReadError::NotAFile) }
}

// === impl ConfiguredFile ===

impl ConfiguredFile<'_> {
    /// Creates an error about this file.
    pub fn error(self, fault: impl Into<String>) -> TlsFileError {
        let help = match self.key {
            "ca" => "use a PEM file with the certificate of at least one certificate authority",
            "crl" => "use a PEM file with a revocation list (`X509 CRL`) of each authority",
            "key" => "use a PEM file with the unencrypted private key of the certificate",
            "ocsp" => "use an OCSP response in DER, as `openssl ocsp -respout` writes it",
            _ => "use a PEM file with the certificate, followed by its intermediate certificates",
        };
        TlsFileError { key: self.key, path: self.path.to_owned(), fault: fault.into(), help: help.into() }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, is not a regular file, or is too long.
    pub fn read(self) -> Result<Vec<u8>, TlsFileError> {
        read_bounded(self.path).map_err(|error| {
            let unread = self.error(error.to_string());
            TlsFileError { help: error.help(self.path).map_or(unread.help.clone(), Into::into), ..unread }
        })
    }
}

// === impl FileReadError ===

impl From<FileReadError> for io::Error {
    fn from(error: FileReadError) -> Self {
        match error {
            FileReadError::Unreadable(error) => error,
            FileReadError::NotAFile => Self::new(io::ErrorKind::InvalidInput, "it is not a regular file"),
            FileReadError::TooLong(_) => Self::new(io::ErrorKind::FileTooLarge, "it is too long"),
        }
    }
}

impl FileReadError {
    /// Returns the `help:` text of the error, or `None` if there is nothing to add.
    pub fn help(&self, path: &Path) -> Option<String> {
        match self {
            Self::Unreadable(error) => match error.kind() {
                io::ErrorKind::NotFound => Some("a relative path starts at the folder of the rule file".to_owned()),
                io::ErrorKind::PermissionDenied => Some(permissions(path)),
                _ => None,
            },
            Self::NotAFile => Some("name a regular file of at most 1 MiB".to_owned()),
            Self::TooLong(max) => Some(format!("name a regular file of at most {} MiB", max >> 20)),
        }
    }
}

/// Describes which user may not read the file, and the file's owner and mode.
fn permissions(path: &Path) -> String {
    let runs_as = user().map_or_else(String::new, |uid| format!("the gateway runs as uid {uid}, and "));
    match fs::metadata(path) {
        Ok(metadata) => {
            let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
            format!("{runs_as}the file has mode {mode:04o}, uid {uid} and gid {gid}: allow that user to read it")
        }
        Err(_) => format!("{runs_as}that user may not enter one of the file's parent folders"),
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
        let help = FileReadError::Unreadable(io::ErrorKind::PermissionDenied.into()).help(&path).expect("a help");
        fs::remove_file(&path).expect("the temporary file");
        assert!(help.contains("the file has mode 0600, uid "), "{help}");
    }
}
