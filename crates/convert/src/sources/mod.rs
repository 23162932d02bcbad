//! Reads the files of a conversion within bounds: sizes, number, depth and cycles of `include`.

pub mod glob;
pub(crate) mod texts;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ConvertError;
pub use crate::error::{MAX_FILE_BYTES, ReadError};
use crate::options::Options;
use crate::report::Place;

/// The most bytes of all reads together. A file counts each time that it is included.
const MAX_BYTES: usize = 64 << 20;

/// The most reads of files.
const MAX_READS: usize = 1_000;

/// The deepest nesting of `include`.
const MAX_INCLUDES: usize = 16;

/// The files that a conversion may read: those that the caller gave, and included ones.
pub trait Files {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not UTF-8, or is longer than [`MAX_FILE_BYTES`].
    fn read(&self, path: &Path) -> Result<String, ReadError>;

    /// Returns the paths of the files that match a pattern with `*`, `?` and `[...]`, in order. A pattern without these
    /// characters matches the path itself, if the file exists.
    ///
    /// # Errors
    /// Fails if a folder cannot be read, or too many files match.
    fn list(&self, pattern: &Path) -> Result<Vec<PathBuf>, ReadError>;
}

/// The files and the options of a conversion.
pub(crate) struct Input<'a> {
    /// The files that the caller gave, in order.
    pub(crate) paths: &'a [PathBuf],
    pub(crate) options: &'a Options,
    files: &'a dyn Files,
    /// The texts that the detection of the format has read.
    peeked: HashMap<PathBuf, Text>,
    /// The files whose `include` is open, each with the place of the `include`.
    open: Vec<(PathBuf, Place)>,
    bytes: usize,
    reads: usize,
}

/// The text of a file.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// The path, as the caller or an `include` gave it.
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
}

// === impl Input ===

impl<'a> Input<'a> {
    pub(crate) fn new(paths: &'a [PathBuf], files: &'a dyn Files, options: &'a Options) -> Self {
        Self { paths, options, files, peeked: HashMap::new(), open: Vec::new(), bytes: 0, reads: 0 }
    }

    /// Reads a file that is not an `include`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a bound is exceeded.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Text, ConvertError> {
        match self.peeked.remove(path) {
            Some(text) => Ok(text),
            None => self.load(path),
        }
    }

    /// Reads a file for the detection of its format. [`read`](Self::read) then returns the same text.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a bound is exceeded.
    pub(crate) fn peek(&mut self, path: &Path) -> Result<Text, ConvertError> {
        if let Some(text) = self.peeked.get(path) {
            return Ok(text.clone());
        }
        let text = self.load(path)?;
        self.peeked.insert(path.to_owned(), text.clone());
        Ok(text)
    }

    /// Reads an included file, and opens it: until [`leave`](Self::leave), no `include` may name it again.
    ///
    /// # Errors
    /// Fails if the file cannot be read, a bound is exceeded, or the file is already open.
    pub(crate) fn enter(&mut self, path: &Path, include: &Place) -> Result<Text, ConvertError> {
        if let Some((_, first)) = self.open.iter().find(|(open, _)| open == path) {
            let (place, first) = (include.clone(), first.clone());
            return Err(ConvertError::IncludeCycle { place, file: path.display().to_string(), first });
        }
        if self.open.len() >= MAX_INCLUDES {
            let message = format!("files are included more than {MAX_INCLUDES} levels deep");
            return Err(ConvertError::syntax(include, message));
        }
        let text = self.read(path)?;
        self.open.push((path.to_owned(), include.clone()));
        Ok(text)
    }

    /// Closes the file that was opened last.
    pub(crate) fn leave(&mut self) {
        self.open.pop();
    }

    /// Returns the files that match the pattern of an `include`, in order.
    ///
    /// # Errors
    /// Fails if a folder cannot be read.
    pub(crate) fn list(&self, pattern: &Path) -> Result<Vec<PathBuf>, ConvertError> {
        self.files.list(pattern).map_err(|error| ConvertError::Read { path: pattern.to_owned(), error })
    }

    fn load(&mut self, path: &Path) -> Result<Text, ConvertError> {
        self.reads += 1;
        if self.reads > MAX_READS {
            return Err(ConvertError::Bound(format!("more than {MAX_READS} files, with each `include` counted")));
        }
        let read = |error| ConvertError::Read { path: path.to_owned(), error };
        let text = self.files.read(path).map_err(read)?;
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            let message = format!("the files have more than {} MiB together", MAX_BYTES >> 20);
            return Err(ConvertError::Bound(message));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        Ok(Text { name: path.display().to_string().into(), text: text.into() })
    }
}

// === impl Text ===

impl Text {
    /// Returns a place in this file. Lines start at 1.
    pub(crate) fn place(&self, line: u32) -> Place {
        Place { file: Arc::clone(&self.name), line }
    }
}

#[cfg(test)]
mod tests {
    use super::texts::Texts;
    use super::*;

    fn with(files: &Texts, act: impl FnOnce(&mut Input<'_>)) {
        act(&mut Input::new(&[], files, &Options::default()));
    }

    #[test]
    fn cycle_of_includes_is_an_error_with_both_places() {
        let files = Texts::from([("a", "include b"), ("b", "include a")]);
        with(&files, |input| {
            let start = Place::start_of("a");
            let a = input.enter(Path::new("a"), &start).unwrap();
            let b = input.enter(Path::new("b"), &a.place(1)).unwrap();
            let error = input.enter(Path::new("a"), &b.place(1)).unwrap_err();
            assert_eq!(error.to_string(), "b:1: the file a includes itself, first at a:1");
        });
    }

    #[test]
    fn nesting_and_number_of_includes_are_bounded() {
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let files: Texts = names.iter().map(|name| (name.as_str(), "")).collect();
        with(&files, |input| {
            let place = Place::start_of("0");
            let enter = |name: &String| input.enter(Path::new(name), &place).err();
            let error = names.iter().find_map(enter).unwrap();
            assert_eq!(error.to_string(), "0:1: files are included more than 16 levels deep");
        });
        with(&files, |input| {
            let error = std::iter::repeat_with(|| input.read(Path::new("0")).err()).find_map(|error| error).unwrap();
            assert_eq!(error.to_string(), "more than 1000 files, with each `include` counted");
        });
    }

    #[test]
    fn bytes_of_all_files_are_bounded() {
        let long = "x".repeat(10 << 20);
        let files = Texts::from([("a", long.as_str())]);
        with(&files, |input| {
            let error = std::iter::repeat_with(|| input.read(Path::new("a")).err()).find_map(|error| error).unwrap();
            assert_eq!(error.to_string(), "the files have more than 64 MiB together");
        });
    }
}
