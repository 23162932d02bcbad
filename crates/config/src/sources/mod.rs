//! The files that a configuration is read from: the rule file, included files, and files with values.

pub(crate) mod file_checks;
pub(crate) mod referenced_files;
pub(crate) mod rule_texts;
pub(crate) mod text;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blake3::Hash;

use self::rule_texts::{IncludedText, RuleTexts};
use self::text::MAX_READ;
use tidegate_rules::settings::files::{FileReadError, read_regular};
use tidegate_rules::watch::Stamp;

/// The files that a configuration was read from.
#[derive(Debug, Default)]
pub struct SourceFiles {
    /// Files and folders, each with its metadata from before it was read.
    seen: Vec<(PathBuf, Option<Stamp>)>,
    /// The hashes of texts, names and errors, in the order of reading.
    hashes: Vec<Hash>,
    /// The texts, if they are kept.
    texts: RuleTexts,
}

impl SourceFiles {
    /// Returns the hash of the texts of files, and of the names and metadata in folders. Unlike [`hash`](Self::hash), it
    /// needs no parser, whose tree takes 30 times the memory of the text.
    pub fn hash_texts(paths: &[PathBuf]) -> Hash {
        let mut hasher = blake3::Hasher::new();
        for path in paths {
            let text = match std::fs::read_dir(path) {
                Ok(folder) => {
                    let mut names: Vec<_> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
                    names.sort();
                    names
                        .iter()
                        .map(|name| format!("{name:?} {:?}\n", Stamp::read(name)))
                        .collect::<String>()
                        .into_bytes()
                }
                Err(_) => read_regular(path, MAX_READ).unwrap_or_else(|error| error.to_string().into_bytes()),
            };
            hasher.update(blake3::hash(&text).as_bytes());
        }
        hasher.finalize()
    }

    /// Records the metadata of a file or folder that is read next.
    pub(crate) fn record(&mut self, path: &Path) {
        if !self.seen.iter().any(|(seen, _)| seen == path) {
            self.seen.push((path.to_owned(), Stamp::read(path)));
        }
    }

    pub(crate) fn record_text(&mut self, text: &[u8]) {
        self.hashes.push(blake3::hash(text));
    }

    /// Records an error about included files. The hash changes if the error appears, changes or disappears.
    pub(crate) fn record_error(&mut self, error: &dyn Display) {
        let key = blake3::derive_key("tidegate error of a source file", error.to_string().as_bytes());
        self.hashes.push(Hash::from(key));
    }

    /// Reads the rule file, at most `limit` bytes. With `must_be_regular`, never opens a pipe or device.
    pub(crate) fn read(&mut self, path: &Path, limit: u64, must_be_regular: bool) -> io::Result<Vec<u8>> {
        self.record(path);
        let mut bytes = Vec::new();
        if must_be_regular {
            bytes = read_regular(path, limit)?;
        } else {
            File::open(path)?.take(limit).read_to_end(&mut bytes)?;
        }
        self.record_text(&bytes);
        Ok(bytes)
    }

    /// Reads an included file, at most `limit` bytes. Records its name, and its text or its error.
    pub(crate) fn read_included(&mut self, path: &Path, name: &Path, limit: u64) -> Result<Vec<u8>, FileReadError> {
        self.record(path);
        // Another name changes messages and the locations of limits. Equal files of gateways in other folders have the
        // same hash, so the name is relative to the folder of the rule file.
        self.record_text(name.as_os_str().as_bytes());
        let read = read_regular(path, limit);
        match &read {
            Ok(bytes) => self.record_text(bytes),
            Err(error) => self.record_error(error),
        }
        read
    }

    /// Keeps the text of the rule file.
    pub(crate) fn keep_main(&mut self, text: String) {
        self.texts.main = text.into();
    }

    /// Keeps the text of an included file.
    pub(crate) fn keep_included(&mut self, file: IncludedText) {
        self.texts.included.push(file);
    }

    /// Records that the kept texts lack a file.
    pub(crate) fn mark_incomplete(&mut self) {
        self.texts.is_incomplete = true;
    }

    /// Removes and returns the kept texts.
    pub(crate) fn take_texts(&mut self) -> RuleTexts {
        std::mem::take(&mut self.texts)
    }

    /// Returns `true` if no file's metadata has changed since it was read.
    pub(crate) fn are_unchanged(&self) -> bool {
        self.seen.iter().all(|(path, stamp)| Stamp::read(path) == *stamp)
    }

    /// Returns `false` if the rule file was standard input, a pipe or a device, which can be read only once.
    pub fn can_be_read_again(&self) -> bool {
        matches!(&*self.seen, [(_, Some(_)), ..])
    }

    /// Returns the paths of the files and folders.
    pub fn into_paths(self) -> Vec<PathBuf> {
        self.seen.into_iter().map(|(path, _)| path).collect()
    }

    /// Returns what [`hash_texts`](Self::hash_texts) returns for the texts that were read. Returns `None` if this is not
    /// known: if there are several files.
    pub fn watched_hash(&self) -> Option<Hash> {
        match (&*self.seen, &*self.hashes) {
            ([_], [text]) => Some(blake3::hash(text.as_bytes())),
            _ => None,
        }
    }

    /// Returns the hash of everything that was read. Returns `None` if nothing was.
    pub fn hash(&self) -> Option<Hash> {
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
