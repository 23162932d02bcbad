//! Loads a rule file, from a path or from standard input.

pub mod built;
mod descriptors;
mod include;
mod part_files;
mod paths;
mod prices;
mod recover;
mod sent;
mod steps;
mod written;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::recover::recover;
pub use self::sent::WithSentDomains;
pub(crate) use self::steps::run;
pub use self::written::WrittenRules;
use crate::problem::{Problem, Problems};
use crate::sources::SourceFiles;
use crate::sources::referenced_files::ReferencedFiles;
use crate::sources::rule_texts::RuleTexts;
use crate::sources::text::MAX_READ;
use crate::{Config, FileChecks, Purpose, Source};
use tidegate_rules::watch::read_detached;

/// The maximum number of times that the files are read if they keep changing. The gateway notices later changes.
const MAX_ATTEMPTS: u32 = 5;

/// The longest time without a response of the file system at a reload.
const MAX_RELOAD: Duration = Duration::from_secs(10);

/// The error of a rule file that cannot be loaded. Its message contains all errors of the file.
#[derive(Debug)]
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
#[derive(Clone, Debug)]
pub enum RuleFile {
    /// A file.
    Path(PathBuf),
    /// Standard input. Relative paths start at the current folder.
    Stdin,
    /// A text that the program has written. Relative paths start at the current folder.
    Written(Arc<WrittenRules>),
}

/// How a rule file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Once, also from a pipe.
    First,
    /// Like `First`. All texts are kept.
    FirstWithTexts,
    /// Again. It must be a regular file.
    Again,
    /// Like `Again`. All texts are kept.
    AgainWithTexts,
    /// Without the files that it refers to.
    RulesOnly,
    /// Like `RulesOnly`. All texts are kept.
    RulesWithTexts,
    /// Like `RulesOnly`. Placeholders need no values.
    Unknown,
    /// Like `RulesOnly`. Paths stay as they are written.
    Compared,
}

/// The result of a check without other files.
#[derive(Debug)]
pub struct PartlyChecked {
    /// Valid values that are probably not intended, and values that are not known.
    pub warnings: Vec<Problem>,
    /// The number of values that are not known: of `${file:}`, and of variables that are not set.
    pub unknown_values: usize,
}

/// The result of loading a rule file, with the files that were read.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration, or all errors.
    pub config: Result<Config, ConfigLoadError>,
    /// The files that were read.
    pub sources: SourceFiles,
    /// The texts of the configuration. Empty if they are not kept, or if the rule file is not YAML.
    pub texts: RuleTexts,
}

/// Loads the file at `path` for a Tower layer. It must be a regular file. Returns the files that were read, too.
pub fn load_for_layer(path: &Path, checks: &'static dyn FileChecks) -> Loaded {
    let files = ReferencedFiles::relative_to(path).with_checks(checks);
    let source = Source { files, name: path, ..Source::text(Purpose::Layer) };
    read_unchanged(source, |sources| sources.read(path, MAX_READ, true))
}

/// Loads the file at `path`.
pub(crate) fn load(path: &Path, purpose: Purpose, checks: &'static dyn FileChecks) -> Result<Config, ConfigLoadError> {
    let files = ReferencedFiles::relative_to(path).with_checks(checks);
    let source = Source { files, name: path, ..Source::text(purpose) };
    read_unchanged(source, |sources| sources.read(path, MAX_READ, false)).config
}

/// Parses the file that `read_main` reads, and the files that contain its values. Reads all files again if one changes in the
/// meantime.
fn read_unchanged(source: Source<'_>, read_main: impl Fn(&mut SourceFiles) -> io::Result<Vec<u8>>) -> Loaded {
    let mut attempts = 1;
    loop {
        let mut sources = SourceFiles::default();
        let bytes = read_main(&mut sources);
        let config = parse(source.name, bytes, source, &mut sources);
        if attempts == MAX_ATTEMPTS || sources.are_unchanged() {
            return Loaded { config, texts: sources.take_texts(), sources };
        }
        attempts += 1;
    }
}

/// Parses the text of a file. `path` is used only in messages.
fn parse(
    path: &Path,
    bytes: io::Result<Vec<u8>>,
    source: Source<'_>,
    sources: &mut SourceFiles,
) -> Result<Config, ConfigLoadError> {
    let bytes = bytes.map_err(|source| ConfigLoadError::Unreadable { path: path.to_owned(), source })?;
    run(bytes, source, sources).map_err(|problems| ConfigLoadError::Invalid { path: path.to_owned(), problems })
}

// === impl RuleFile ===

impl RuleFile {
    /// Loads the file for a command that evaluates its rules: `listen` and the routes' `upstream` may be missing.
    pub fn load(&self, checks: &'static dyn FileChecks) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Command, checks, Reading::First).config
    }

    /// Like [`load`](Self::load), without opening the files that it refers to.
    pub fn load_rules(&self, checks: &'static dyn FileChecks) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Command, checks, Reading::RulesOnly).config
    }

    /// Like [`load_rules`](Self::load_rules), and returns the texts.
    pub fn load_rules_with_texts(&self, checks: &'static dyn FileChecks) -> Loaded {
        self.read(Purpose::Layer, checks, Reading::RulesWithTexts)
    }

    /// Loads the file for the gateway.
    pub fn load_for_gateway(&self, checks: &'static dyn FileChecks) -> Result<Config, ConfigLoadError> {
        self.load_with_sources(checks).config
    }

    /// Loads the file for the gateway. Returns the files that were read, too.
    pub fn load_with_sources(&self, checks: &'static dyn FileChecks) -> Loaded {
        self.read(Purpose::Gateway, checks, Reading::First)
    }

    /// Like [`load_with_sources`](Self::load_with_sources), and keeps all texts. If only files of teams have errors, uses the
    /// last valid texts of these files.
    pub fn load_with_texts(&self, checks: &'static dyn FileChecks, last_valid: Option<&RuleTexts>) -> Loaded {
        let loaded = self.read(Purpose::Gateway, checks, Reading::FirstWithTexts);
        match last_valid {
            Some(last_valid) => recover(loaded, last_valid, &|texts| self.load_texts(checks, texts)),
            None => loaded,
        }
    }

    /// Loads the file again. It must be a regular file: a pipe would block, or has been read to its end. A file system that
    /// does not respond for 10 seconds is an error. If only files of teams have errors, uses the last valid texts of these
    /// files. Keeps all texts if `keeps_texts`.
    pub fn reload(&self, checks: &'static dyn FileChecks, last_valid: RuleTexts, keeps_texts: bool) -> Loaded {
        let file = self.clone();
        let reading = if keeps_texts { Reading::AgainWithTexts } else { Reading::Again };
        let load = move || {
            let loaded = file.read(Purpose::Gateway, checks, reading);
            recover(loaded, &last_valid, &|texts| file.load_texts(checks, texts))
        };
        read_detached(MAX_RELOAD, load).unwrap_or_else(|source| {
            let config = Err(ConfigLoadError::Unreadable { path: PathBuf::from(self.to_string()), source });
            Loaded { config, sources: SourceFiles::default(), texts: RuleTexts::default() }
        })
    }

    /// Loads these texts for the gateway, instead of the files. Their placeholders are replaced by current values.
    pub fn load_texts(&self, checks: &'static dyn FileChecks, texts: &RuleTexts) -> Result<Config, ConfigLoadError> {
        let source = Source { texts: Some(texts), ..self.source(Purpose::Gateway, checks) };
        parse(source.name, Ok(texts.main.as_bytes().to_vec()), source, &mut SourceFiles::default())
    }

    /// Loads the file for the gateway without opening the certificates, keys and password files that it refers to.
    pub fn load_without_referenced_files(&self, checks: &'static dyn FileChecks) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Gateway, checks, Reading::RulesOnly).config
    }

    /// Like [`load_without_referenced_files`](Self::load_without_referenced_files), with all paths as they are written, to
    /// compare rule files in different folders.
    pub fn load_to_compare(&self, checks: &'static dyn FileChecks) -> Result<Config, ConfigLoadError> {
        self.read(Purpose::Gateway, checks, Reading::Compared).config
    }

    /// Checks the file for the gateway without opening the files that it refers to. The values of `${file:}` and of variables
    /// that are not set are unknown: they pass every check.
    ///
    /// # Errors
    /// The file cannot be read, or has errors.
    pub fn check_without_referenced_files(
        &self,
        checks: &'static dyn FileChecks,
    ) -> Result<PartlyChecked, ConfigLoadError> {
        match self.read(Purpose::Gateway, checks, Reading::Unknown).config {
            Ok(config) => Ok(PartlyChecked { warnings: config.warnings, unknown_values: 0 }),
            Err(ConfigLoadError::Invalid { mut problems, .. }) if problems.is_empty() => {
                let unknown_values = problems.unknown_values();
                Ok(PartlyChecked { warnings: problems.take_warnings(), unknown_values })
            }
            Err(error) => Err(error),
        }
    }

    fn source(&self, purpose: Purpose, checks: &'static dyn FileChecks) -> Source<'_> {
        let (name, files) = match self {
            Self::Path(path) => (path.as_path(), ReferencedFiles::relative_to(path)),
            Self::Stdin => (Path::new("<stdin>"), ReferencedFiles::in_current_folder()),
            Self::Written(rules) => {
                (&*rules.name, ReferencedFiles::in_current_folder().with_variables(&rules.variables))
            }
        };
        Source { files: files.with_checks(checks), name, ..Source::text(purpose) }
    }

    fn read(&self, purpose: Purpose, checks: &'static dyn FileChecks, reading: Reading) -> Loaded {
        let source = self.source(purpose, checks);
        let files = match reading {
            Reading::RulesOnly | Reading::RulesWithTexts => source.files.unchecked(),
            Reading::Unknown => source.files.unchecked().accepting_unknown(),
            Reading::Compared => source.files.unchecked().keeping_paths(),
            Reading::First | Reading::FirstWithTexts | Reading::Again | Reading::AgainWithTexts => source.files,
        };
        let keeps_texts =
            matches!(reading, Reading::FirstWithTexts | Reading::AgainWithTexts | Reading::RulesWithTexts);
        let source = Source { files, keeps_texts, ..source };
        match self {
            Self::Path(path) => {
                let must_be_regular = matches!(reading, Reading::Again | Reading::AgainWithTexts);
                read_unchanged(source, |sources| sources.read(path, MAX_READ, must_be_regular))
            }
            Self::Written(rules) => read_unchanged(source, |sources| {
                sources.record_text(rules.text.as_bytes());
                Ok(rules.text.clone().into_bytes())
            }),
            Self::Stdin => {
                use std::io::Read;
                let (mut bytes, mut sources) = (Vec::new(), SourceFiles::default());
                let read = io::stdin().lock().take(MAX_READ).read_to_end(&mut bytes);
                sources.record_text(&bytes);
                let config = parse(source.name, read.map(|_| bytes), source, &mut sources);
                Loaded { config, texts: sources.take_texts(), sources }
            }
        }
    }
}

/// Converts a command line argument: a path, or `-` for standard input.
impl From<std::ffi::OsString> for RuleFile {
    fn from(arg: std::ffi::OsString) -> Self {
        if arg == "-" { Self::Stdin } else { Self::Path(arg.into()) }
    }
}

/// Displays the name for messages.
impl std::fmt::Display for RuleFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("<stdin>"),
            Self::Written(rules) => rules.name.display().fmt(f),
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

#[cfg(test)]
mod tests {
    use super::super::LibraryFiles;
    use super::*;

    /// Regression test: a file that was removed right after it was read counted as a pipe, and was not watched.
    #[test]
    fn kind_of_the_file_is_that_when_it_was_read() {
        let path = std::env::temp_dir().join(format!("tidegate-regular-{}.yaml", std::process::id()));
        std::fs::write(&path, "{}").expect("a temporary file");
        let sources = RuleFile::Path(path.clone()).load_with_sources(&LibraryFiles).sources;
        std::fs::remove_file(&path).expect("the temporary file");
        assert!(sources.can_be_read_again());
        assert!(!RuleFile::Path("/dev/null".into()).load_with_sources(&LibraryFiles).sources.can_be_read_again());
    }
}
