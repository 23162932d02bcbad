//! Reading the file, before anything in it means anything.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::problem::{Location, Problems};

/// The largest rule file, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Why a file gives no [`Config`](super::Config).
#[derive(Debug)]
pub enum LoadError {
    /// It could not be read, so nothing is known about what is in it.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It was read, and these are its mistakes.
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All of them.
        problems: Problems,
    },
}

/// The text of the file, however large: no more of it is read than it takes to see that it is too large.
pub(super) fn read(path: &Path) -> Result<String, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = if bytes.len() > MAX_BYTES { Err(too_large()) } else { decode(bytes) };
    text.map_err(|problems| LoadError::Mistakes { path: path.to_owned(), problems })
}

/// What is said of a file that is too large.
pub(super) fn too_large() -> Problems {
    let mut problems = Problems::default();
    let message = format!("the file is larger than {MAX_BYTES} bytes (1 MiB)");
    problems.add(Location::START, message, "one route can stand for many with `{segment}`, `/**` and `*.host`");
    problems
}

fn decode(bytes: Vec<u8>) -> Result<String, Problems> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let byte = error.as_bytes().get(valid).copied().unwrap_or_default();
        let mut problems = Problems::default();
        problems.add(Location { line, column }, format!("byte 0x{byte:02x} is not UTF-8"), "save the file as UTF-8");
        problems
    })
}

// === impl LoadError ===

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable { path, source } => write!(f, "{}: cannot be read: {source}", path.display()),
            Self::Mistakes { path, problems } => problems.in_file(path).fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}
