//! The texts of a rule file and its included files, as they were read. Their placeholders are not replaced, so they contain no
//! text of a file with secrets.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blake3::Hash;

/// The texts of a rule file and its included files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTexts {
    /// The rule file.
    pub main: Arc<str>,
    /// The included files, in the order of their routes.
    pub included: Vec<IncludedText>,
    /// Whether a file that belongs to no team, or a folder, could not be read.
    pub(crate) is_incomplete: bool,
}

/// The text of an included file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncludedText {
    /// The path, relative to the folder of the rule file if it is in this folder.
    pub path: PathBuf,
    /// The name of its team, if it belongs to one.
    pub team: Option<Arc<str>>,
    /// The text. `None` if the file cannot be used, or if its routes are left out.
    pub text: Option<Arc<str>>,
}

impl RuleTexts {
    /// Creates the texts of valid rules.
    pub fn new(main: Arc<str>, included: Vec<IncludedText>) -> Self {
        Self { main, included, is_incomplete: false }
    }

    /// Returns the included file with this path.
    pub(crate) fn find(&self, path: &Path) -> Option<&IncludedText> {
        self.included.iter().find(|file| file.path == path)
    }

    /// Returns the hash of all texts.
    pub fn hash(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(blake3::hash(self.main.as_bytes()).as_bytes());
        for IncludedText { path, text, .. } in &self.included {
            hasher.update(blake3::hash(path.as_os_str().as_bytes()).as_bytes());
            hasher.update(text.as_ref().map_or(Hash::from([0; 32]), |text| blake3::hash(text.as_bytes())).as_bytes());
        }
        hasher.finalize()
    }
}
