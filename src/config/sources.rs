//! The files that a configuration is read from: the rule file, and the files with values.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blake3::Hash;

use crate::watch::Stamp;

/// The files that a configuration was read from.
#[derive(Debug, Default)]
pub(crate) struct SourceFiles {
    /// Files and folders, each with its metadata from before it was read.
    seen: Vec<(PathBuf, Option<Stamp>)>,
    /// The hashes of the texts, in the order of reading.
    hashes: Vec<Hash>,
}

impl SourceFiles {
    /// Records the metadata of a file or folder that is read next.
    pub(super) fn record(&mut self, path: &Path) {
        if !self.seen.iter().any(|(seen, _)| seen == path) {
            self.seen.push((path.to_owned(), Stamp::of(path)));
        }
    }

    /// Records the text of a file.
    pub(super) fn record_text(&mut self, text: &[u8]) {
        self.hashes.push(blake3::hash(text));
    }

    /// Reads a file, at most `limit` bytes.
    pub(super) fn read(&mut self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.record(path);
        let mut bytes = Vec::new();
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
        // The name is part of messages and of the locations of limits.
        if !self.hashes.is_empty() {
            self.record_text(path.as_os_str().as_bytes());
        }
        self.record_text(&bytes);
        Ok(bytes)
    }

    /// Returns `true` if no file has changed since it was read.
    pub(super) fn are_unchanged(&self) -> bool {
        self.seen.iter().all(|(path, stamp)| Stamp::of(path) == *stamp)
    }

    /// Returns the paths of the files and folders.
    pub(crate) fn into_paths(self) -> Vec<PathBuf> {
        self.seen.into_iter().map(|(path, _)| path).collect()
    }

    /// Returns the hash of everything that was read. Returns `None` if nothing was.
    pub(crate) fn hash(&self) -> Option<Hash> {
        match &*self.hashes {
            [] => None,
            [text] => Some(*text),
            [..] => {
                let mut hasher = blake3::Hasher::new();
                self.hashes.iter().for_each(|hash| _ = hasher.update(hash.as_bytes()));
                Some(hasher.finalize())
            }
        }
    }
}
