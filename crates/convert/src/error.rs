//! The errors of a conversion.

use std::path::PathBuf;

use crate::report::Place;

/// The longest file, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why files could not be converted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConvertError {
    /// No file has a known format.
    #[error("the format is not recognized: select it with `--from`")]
    UnknownFormat,
    /// A file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// The path, as the caller or an `include` gave it.
        path: PathBuf,
        /// The reason.
        error: ReadError,
    },
    /// A file has an error at this place.
    #[error("{place}: {message}")]
    Syntax {
        /// The place of the error.
        place: Place,
        /// The error.
        message: String,
    },
    /// A file includes itself.
    #[error("{place}: the file {file} includes itself, first at {first}")]
    IncludeCycle {
        /// The place of the last `include`.
        place: Place,
        /// The file.
        file: String,
        /// The place of the first `include` in the cycle, or the start of the file that the caller gave.
        first: Place,
    },
    /// The files exceed a bound.
    #[error("{0}")]
    Bound(String),
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist.
    #[error("the file does not exist")]
    Missing,
    /// The file is longer than [`MAX_FILE_BYTES`].
    #[error("the file is longer than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLong,
    /// The file is not UTF-8 text.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// The system reports another error.
    #[error("{0}")]
    Failed(String),
}

// === impl ConvertError ===

impl ConvertError {
    /// Returns a syntax error at this place.
    pub(crate) fn syntax(place: &Place, message: impl Into<String>) -> Self {
        Self::Syntax { place: place.clone(), message: message.into() }
    }
}
