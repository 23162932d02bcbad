//! Reads the files that are parts of the rules: included files, and files with descriptors.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::problem::{Checked, Location, Problems, quote};
use crate::sources::rule_texts::IncludedText;
use crate::sources::text::{MAX_READ, decode};
use crate::yaml::Usage;
use crate::yaml::placeholders::Placeholders;
use crate::{Source, Team};
use tidegate_rules::settings::files::FileReadError;

/// The most bytes of all files of a key together.
const MAX_TOTAL: usize = 16 << 20;

/// The most files of a key.
pub(super) const MAX_FILES: usize = 1000;

/// The key that names the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKey {
    /// `include`.
    Include,
    /// `descriptors` of `service`.
    Descriptors,
    /// `prices` of limits.
    Prices,
}

/// Reads the files of one key.
pub(super) struct PartFiles<'i, 'p> {
    pub(super) source: Source<'p>,
    pub(super) usage: &'i mut Usage,
    pub(super) placeholders: &'i mut Placeholders<'p>,
    pub(super) problems: &'i mut Problems,
    key: PartKey,
    /// The bytes that the files may still have.
    remaining: usize,
}

impl PartKey {
    /// Returns the key.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Include => "include",
            Self::Descriptors => "descriptors",
            Self::Prices => "prices",
        }
    }

    /// Returns the name of the files in messages.
    pub(super) const fn files(self) -> &'static str {
        match self {
            Self::Include => "included files",
            Self::Descriptors => "files of `descriptors`",
            Self::Prices => "files of `prices`",
        }
    }

    /// Returns the message and the help for a rule file that names itself.
    const fn itself(self) -> (&'static str, &'static str) {
        match self {
            Self::Include => (
                "the rule file includes itself",
                "move the included files to their own folder, as in `include: conf.d/*.yaml`",
            ),
            Self::Descriptors => (
                "the rule file is one of the files of `descriptors`",
                "move these files to their own folder, as in `descriptors: ratelimit/*.yaml`",
            ),
            Self::Prices => ("the rule file is the file of `prices`", "write the prices into another file"),
        }
    }
}

impl<'i, 'p> PartFiles<'i, 'p> {
    /// Creates a reader of the files of a key.
    pub(super) fn new(
        key: PartKey,
        source: Source<'p>,
        usage: &'i mut Usage,
        placeholders: &'i mut Placeholders<'p>,
        problems: &'i mut Problems,
    ) -> Self {
        Self { source, usage, placeholders, problems, key, remaining: MAX_TOTAL }
    }

    /// Returns the text of the file with this number, whose errors have this location. Returns `None` if the file is left
    /// out.
    pub(super) fn read(&mut self, path: &Path, number: u16, location: Location) -> Checked<Option<String>> {
        let text = self.text(path, number, location)?;
        let length = text.as_ref().map_or(0, String::len);
        let rest = self.remaining.checked_sub(length).ok_or_else(|| {
            let message = format!("the {} are together larger than {MAX_TOTAL} bytes (16 MiB)", self.key.files());
            let help = match self.key {
                PartKey::Include => "combine routes with `{segment}`, `/**` and `*.host`",
                PartKey::Descriptors => "combine descriptors with `*`",
                PartKey::Prices => "combine models with `*`",
            };
            self.problems.add(location, message, help)
        });
        self.remaining = rest?;
        Ok(text)
    }

    /// Keeps the text of a file.
    pub(super) fn keep(&mut self, path: &Path, team: Option<&Team>, text: Option<String>) {
        if self.source.keeps_texts {
            let path = self.source.files.relative(path).to_owned();
            let (team, text) = (team.map(|team| Arc::clone(&team.name)), text.map(Into::into));
            self.placeholders.sources().keep_included(IncludedText { path, team, text });
        }
    }

    fn text(&mut self, path: &Path, number: u16, location: Location) -> Checked<Option<String>> {
        if let Some(texts) = self.source.texts {
            return match texts.find(self.source.files.relative(path)) {
                Some(file) => Ok(file.text.as_deref().map(str::to_owned)),
                None => {
                    let message = format!("{} is not among the saved files", quote(&path.display().to_string()));
                    Err(self.problems.add(location, message, "correct the rule file"))
                }
            };
        }
        if self.is_main(path) {
            let (message, help) = self.key.itself();
            self.placeholders.sources().record(path);
            self.placeholders.sources().record_error(&message);
            return Err(self.problems.add(location, message, help));
        }
        let name = self.source.files.relative(path);
        let bytes = self.placeholders.sources().read_included(path, name, MAX_READ).map_err(|error| {
            let help = match error {
                FileReadError::NotAFile => "name a regular file of at most 1 MiB",
                _ => "a relative path starts at the folder of the rule file",
            };
            self.problems.add(location, format!("{} {error}", quote(&path.display().to_string())), help)
        })?;
        decode(bytes, number, self.problems).map(Some)
    }

    fn is_main(&self, path: &Path) -> bool {
        let main = fs::canonicalize(self.source.name).ok();
        main.is_some() && fs::canonicalize(path).ok() == main
    }
}
