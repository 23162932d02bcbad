//! The errors of a conversion.

use std::path::PathBuf;

use crate::report::Place;
use crate::sources::ReadError;

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

impl ConvertError {
    /// Returns a syntax error at this place.
    pub(crate) fn syntax(place: &Place, message: impl Into<String>) -> Self {
        Self::Syntax { place: place.clone(), message: message.into() }
    }
}
