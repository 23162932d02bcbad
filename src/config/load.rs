//! Loads a rule file, from a path or from standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::problem::{Location, Problems};
use super::referenced_files::ReferencedFiles;
use super::{Config, Purpose, Source};

/// The largest size of a rule file, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// The error of [`Config::load`] and [`Config::load_for_gateway`]. Its message contains all errors of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigLoadError {
    /// The file cannot be opened or read.
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has errors, is larger than 1 MiB, or is not UTF-8.
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// All errors of the file.
        problems: Problems,
    },
}

/// The rule file that a command of the program reads.
#[cfg(feature = "gateway")]
#[derive(Clone, Debug)]
pub(crate) enum RuleFile {
    /// A file.
    Path(PathBuf),
    /// Standard input. Relative paths start at the current folder.
    Stdin,
}

/// Loads the file at `path`.
pub(super) fn load(path: &Path, purpose: Purpose) -> Result<Config, ConfigLoadError> {
    let source = Source { purpose, files: ReferencedFiles::relative_to(path), name: path };
    read(path, || File::open(path), source)
}

/// Reads and parses a file. `path` is used only in messages.
fn read<R: Read>(
    path: &Path,
    open: impl FnOnce() -> io::Result<R>,
    source: Source<'_>,
) -> Result<Config, ConfigLoadError> {
    parse(path, read_bytes(path, open)?, source)
}

/// Reads at most one byte more than the largest allowed size.
fn read_bytes<R: Read>(path: &Path, open: impl FnOnce() -> io::Result<R>) -> Result<Vec<u8>, ConfigLoadError> {
    let unreadable = |source| ConfigLoadError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    open().and_then(|reader| reader.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    Ok(bytes)
}

fn parse(path: &Path, bytes: Vec<u8>, source: Source<'_>) -> Result<Config, ConfigLoadError> {
    let text = if bytes.len() > MAX_BYTES { Err(too_large()) } else { decode(bytes) };
    let config = text.and_then(|text| Config::read(&text, source));
    config.map_err(|problems| ConfigLoadError::Invalid { path: path.to_owned(), problems })
}

/// Returns the error for a file that is too large.
pub(super) fn too_large() -> Problems {
    let mut problems = Problems::default();
    let message = format!("the file is larger than {MAX_BYTES} bytes (1 MiB)");
    problems.add(Location::START, message, "combine routes with `{segment}`, `/**` and `*.host`");
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

// === impl RuleFile ===

#[cfg(feature = "gateway")]
impl RuleFile {
    /// Loads the file for a layer: `listen` and the routes' `upstream` may be missing.
    pub(crate) fn load(&self) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Layer, true)
    }

    /// Loads the file for the gateway.
    pub(crate) fn load_for_gateway(&self) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Gateway, true)
    }

    /// Reads the bytes of the file, at most one more than the largest size.
    pub(crate) fn read_bytes(&self) -> Result<Vec<u8>, ConfigLoadError> {
        match self {
            Self::Path(path) => read_bytes(path, || File::open(path)),
            Self::Stdin => read_bytes(Path::new("<stdin>"), || Ok(io::stdin().lock())),
        }
    }

    /// Parses the bytes of the file for the gateway.
    pub(crate) fn parse_for_gateway(&self, bytes: Vec<u8>) -> Result<Config, ConfigLoadError> {
        let (path, files) = match self {
            Self::Path(path) => (path.as_path(), ReferencedFiles::relative_to(path)),
            Self::Stdin => (Path::new("<stdin>"), ReferencedFiles::in_current_folder()),
        };
        parse(path, bytes, Source { purpose: Purpose::Gateway, files, name: path })
    }

    /// Loads the file for the gateway without opening the certificates, keys and password files that it refers to.
    pub(crate) fn load_without_referenced_files(&self) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Gateway, false)
    }

    fn read(&self, purpose: Purpose, check_files: bool) -> Result<Config, ConfigLoadError> {
        let (name, files) = match self {
            Self::Path(path) => (path.as_path(), ReferencedFiles::relative_to(path)),
            Self::Stdin => (Path::new("<stdin>"), ReferencedFiles::in_current_folder()),
        };
        let source = Source { purpose, files: if check_files { files } else { files.unchecked() }, name };
        match self {
            Self::Path(path) => read(name, || File::open(path), source),
            Self::Stdin => read(name, || Ok(io::stdin().lock()), source),
        }
    }
}

/// Converts a command line argument: a path, or `-` for standard input.
#[cfg(feature = "gateway")]
impl From<std::ffi::OsString> for RuleFile {
    fn from(arg: std::ffi::OsString) -> Self {
        if arg == "-" { Self::Stdin } else { Self::Path(arg.into()) }
    }
}

/// Displays the name for messages.
#[cfg(feature = "gateway")]
impl std::fmt::Display for RuleFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("<stdin>"),
        }
    }
}

// === impl ConfigLoadError ===

impl std::fmt::Display for ConfigLoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable { path, source } => write!(f, "{}: cannot be read: {source}", path.display()),
            Self::Invalid { path, problems } => problems.in_file(path).fmt(f),
        }
    }
}

impl std::error::Error for ConfigLoadError {}
