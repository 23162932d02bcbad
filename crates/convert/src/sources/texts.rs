//! Files in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::glob::matches_path;
use super::{Files, MAX_FILE_BYTES, ReadError};

/// Files in memory, by path: for tests, and for programs that have the texts already.
#[derive(Clone, Debug, Default)]
pub struct Texts(BTreeMap<PathBuf, String>);

impl<'a> FromIterator<(&'a str, &'a str)> for Texts {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(files: I) -> Self {
        Self(files.into_iter().map(|(path, text)| (PathBuf::from(path), text.to_owned())).collect())
    }
}

impl<'a, const N: usize> From<[(&'a str, &'a str); N]> for Texts {
    fn from(files: [(&'a str, &'a str); N]) -> Self {
        files.into_iter().collect()
    }
}

impl Files for Texts {
    fn read(&self, path: &Path) -> Result<String, ReadError> {
        let text = self.0.get(path).ok_or(ReadError::Missing)?;
        match u64::try_from(text.len()) {
            Ok(length) if length <= MAX_FILE_BYTES => Ok(text.clone()),
            _ => Err(ReadError::TooLong),
        }
    }

    fn list(&self, pattern: &Path) -> Result<Vec<PathBuf>, ReadError> {
        Ok(self.0.keys().filter(|path| matches_path(pattern, path)).cloned().collect())
    }
}
