//! Replaces `${NAME}`, `${NAME:-default}`, `${file:PATH}` and `$$` in the values of a rule file.
//!
//! Values are replaced after the YAML text is parsed, so that a value is always data. Messages never contain text of the
//! rule file other than names and paths, since it may be part of a secret.

use std::collections::HashMap;
use std::env::{self, VarError};
use std::path::PathBuf;
use std::rc::Rc;

use super::scalar::{Origin, Scalar};
use crate::problem::{Location, Problems, Reported, quote};
use crate::sources::SourceFiles;
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::settings::files::read_bounded;

/// The most bytes of all values of a rule file together.
const MAX_TOTAL: usize = 1 << 20;

const SYNTAX_HELP: &str = "write `${NAME}`, `${NAME:-default}` or `${file:PATH}`, and `$$` for a dollar sign";

/// Replaces the placeholders of a rule file.
pub(crate) struct Placeholders<'p> {
    files: ReferencedFiles<'p>,
    sources: &'p mut SourceFiles,
    /// The texts of the files that were read, so that all uses of a file have one value.
    values: HashMap<PathBuf, Result<Rc<str>, FileFault>>,
    /// The number of bytes that values may still have.
    remaining: usize,
    /// Whether a dollar sign has no meaning: in files of other programs.
    is_literal: bool,
}

/// A message and a help.
type FileFault = (String, String);

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    Variable { name: &'t str, default: Option<&'t str> },
    File(&'t str),
}

// === impl Placeholders ===

impl<'p> Placeholders<'p> {
    /// Creates the replacement for a rule file. Relative paths start at the folder of `files`.
    pub(crate) fn new(files: ReferencedFiles<'p>, sources: &'p mut SourceFiles) -> Self {
        Self { files, sources, values: HashMap::new(), remaining: MAX_TOTAL, is_literal: false }
    }

    /// Keeps all texts as they are written, for files of other programs.
    pub(crate) fn literal(sources: &'p mut SourceFiles) -> Self {
        Self { is_literal: true, ..Self::new(ReferencedFiles::in_current_folder(), sources) }
    }

    /// Returns the paths of the rule file.
    pub(crate) fn files(&self) -> ReferencedFiles<'p> {
        self.files
    }

    /// Returns the files that are read.
    pub(crate) fn sources(&mut self) -> &mut SourceFiles {
        self.sources
    }

    /// Replaces the placeholders of a scalar. Returns `None` if the text contains no dollar sign.
    ///
    /// # Errors
    /// All placeholders with errors are reported, and so is an unknown value.
    pub(crate) fn replace(
        &mut self,
        text: &str,
        is_quoted: bool,
        location: Location,
        problems: &mut Problems,
    ) -> Option<Result<Scalar, Reported>> {
        if self.is_literal || !text.contains('$') {
            return None;
        }
        let (mut value, mut reported, mut has_placeholder, mut secrets) = (String::new(), None, false, Vec::new());
        let mut unknown = Vec::new();
        for part in parts(text) {
            let added = match part {
                Ok(Part::Text(text)) => Ok(text.into()),
                Ok(Part::Variable { name, default: None })
                    if self.files.accepts_unknown()
                        && self.files.variable(name).is_none()
                        && env::var_os(name).is_none() =>
                {
                    unknown.push(format!("the variable {} is not set", quote(name)));
                    continue;
                }
                Ok(Part::File(path)) if self.files.accepts_unknown() => {
                    unknown.push(format!("the file {} is not read", quote(path)));
                    continue;
                }
                Ok(Part::Variable { name, default }) => {
                    has_placeholder = true;
                    self.files.variable(name).map_or_else(|| variable(name, default), |value| Ok(value.into()))
                }
                Ok(Part::File(path)) => self.file(path).inspect(|text| secrets.push(text.to_string())),
                Err(message) => Err((message.to_owned(), SYNTAX_HELP.to_owned())),
            };
            match added {
                Ok(added) => value.push_str(&added),
                Err((message, help)) => reported = Some(problems.add(location, message, help)),
            }
            if value.len() > self.remaining {
                let message = format!("the values are together longer than {MAX_TOTAL} bytes (1 MiB)");
                return Some(Err(problems.add(location, message, "name a smaller file or variable")));
            }
        }
        if let Some(reported) = reported {
            return Some(Err(reported));
        }
        if !unknown.is_empty() {
            return Some(Err(problems.add_unknown(location, &unknown.join(", "))));
        }
        self.remaining -= value.len();
        if !secrets.is_empty() {
            problems.note_secret_at(location);
            secrets.push(value.clone());
            return Some(Ok(Scalar::replaced(value, Origin::Files(secrets.into()))));
        }
        Some(Ok(match (has_placeholder, is_quoted) {
            (true, _) => Scalar::replaced(value, Origin::Variables),
            (false, true) => Scalar::quoted(value),
            (false, false) => Scalar::plain(value),
        }))
    }

    fn file(&mut self, path: &str) -> Result<Rc<str>, FileFault> {
        let path = self.files.part_path(path);
        if let Some(value) = self.values.get(&path) {
            return value.clone();
        }
        self.sources.record(&path);
        let name = quote(&path.display().to_string());
        let value = match read_bounded(&path) {
            Err(error) => {
                let help = error.help(&path).unwrap_or_else(|| "name a file with only the value".to_owned());
                let message = format!("the file {name} {error}");
                self.sources.record_error(&message);
                Err((message, help))
            }
            Ok(bytes) => {
                self.sources.record_text(&bytes);
                match String::from_utf8(bytes) {
                    Ok(text) => Ok(without_newline(&text).into()),
                    Err(_) => Err((format!("the file {name} is not UTF-8"), "save the file as UTF-8".to_owned())),
                }
            }
        };
        self.values.insert(path, value.clone());
        value
    }
}

fn variable(name: &str, default: Option<&str>) -> Result<Rc<str>, FileFault> {
    match (env::var(name), default) {
        (Ok(value), Some(default)) if value.is_empty() => Ok(default.into()),
        (Ok(value), _) => Ok(value.into()),
        (Err(VarError::NotPresent), Some(default)) => Ok(default.into()),
        (Err(VarError::NotPresent), None) => {
            let help = format!("set it in the environment of the program, or write `${{{name}:-default}}`");
            Err((format!("the variable {} is not set", quote(name)), help))
        }
        (Err(VarError::NotUnicode(_)), _) => {
            Err((format!("the variable {} is not UTF-8", quote(name)), "set it to text in UTF-8".to_owned()))
        }
    }
}

/// Removes the newline with which editors and `echo` end a file.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// Parses a text. Faults are messages without text of the rule file.
fn parts(text: &str) -> Vec<Result<Part<'_>, &'static str>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        parts.push(Ok(Part::Text(before)));
        let (part, after) = if let Some(after) = after.strip_prefix('$') {
            (Ok(Part::Text("$")), after)
        } else if let Some(inner) = after.strip_prefix('{') {
            inner.split_once('}').map_or((Err("a `${` has no `}`"), ""), |(body, after)| (placeholder(body), after))
        } else {
            (Err("a `$` starts no placeholder"), after)
        };
        parts.push(part);
        rest = after;
    }
    parts.push(Ok(Part::Text(rest)));
    parts
}

/// Parses the text between `${` and `}`.
fn placeholder(body: &str) -> Result<Part<'_>, &'static str> {
    if body.contains('$') {
        return Err("a placeholder contains a `$`");
    }
    if let Some(path) = body.strip_prefix("file:") {
        return if path.trim().is_empty() { Err("`${file:}` names no file") } else { Ok(Part::File(path)) };
    }
    let (name, default) = body.split_once(":-").map_or((body, None), |(name, default)| (name, Some(default)));
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic());
    if is_name { Ok(Part::Variable { name, default }) } else { Err("a `${...}` contains no name of a variable") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::problem::Problem;

    /// Replaces the placeholders of a quoted scalar. Returns the errors otherwise.
    fn replace(text: &str) -> Result<Scalar, String> {
        let (mut sources, mut problems) = (SourceFiles::default(), Problems::default());
        let mut placeholders = Placeholders::new(ReferencedFiles::in_current_folder(), &mut sources);
        match placeholders.replace(text, true, Location::START, &mut problems) {
            None => Ok(Scalar::quoted(text.to_owned())),
            Some(Ok(scalar)) => Ok(scalar),
            Some(Err(Reported { .. })) => Err(problems.iter().map(Problem::message).collect::<Vec<_>>().join("; ")),
        }
    }

    proptest! {
        #[test]
        fn escaped_text_stays_as_it_is(text in "[$a{}: -]{0,20}|\\PC{0,20}") {
            prop_assert_eq!(replace(&text.replace('$', "$$")), Ok(Scalar::quoted(text)));
        }
    }

    #[test]
    fn variables_and_defaults_are_replaced() {
        let package = env!("CARGO_PKG_NAME");
        for (text, value) in [
            ("${CARGO_PKG_NAME}", package.to_owned()),
            ("a $$ ${CARGO_PKG_NAME:-x}, ${TIDEGATE_NOT_SET:-a:-b c} $$$$", format!("a $ {package}, a:-b c $$")),
            ("$${CARGO_PKG_NAME}", "${CARGO_PKG_NAME}".to_owned()),
            ("${TIDEGATE_NOT_SET:-}", String::new()),
        ] {
            assert_eq!(replace(text).map(|scalar| scalar.text), Ok(value), "{text}");
        }
    }

    #[test]
    fn faults_are_reported_together_without_the_text() {
        for (text, messages) in [
            ("hunter$2", "a `$` starts no placeholder"),
            ("$", "a `$` starts no placeholder"),
            ("${hunter2", "a `${` has no `}`"),
            ("${hunter 2} $x", "a `$` starts no placeholder; a `${...}` contains no name of a variable"),
            ("${}${2}", "a `${...}` contains no name of a variable"),
            ("${a:-${b}}", "a placeholder contains a `$`"),
            ("${file: }", "`${file:}` names no file"),
            (
                "${TIDEGATE_A}${TIDEGATE_B}",
                "the variable `TIDEGATE_A` is not set; the variable `TIDEGATE_B` is not set",
            ),
            ("${file:src}", "the file `src` cannot be read: Is a directory (os error 21)"),
            ("${file:/dev/zero}", "the file `/dev/zero` is not a regular file"),
        ] {
            assert_eq!(replace(text), Err(messages.to_owned()), "{text}");
        }
    }

    #[test]
    fn unreadable_file_changes_the_hash() {
        let hashes = ["$$", "${file:src}", "${file:/dev/zero}"].map(|text| {
            let (mut sources, mut problems) = (SourceFiles::default(), Problems::default());
            sources.record_text(b"rule file");
            let mut placeholders = Placeholders::new(ReferencedFiles::in_current_folder(), &mut sources);
            _ = placeholders.replace(text, true, Location::START, &mut problems).unwrap();
            sources.hash().unwrap()
        });
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
    }

    #[test]
    fn value_of_a_file_ends_before_its_newline() {
        for (text, value) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a "), ("", ""), ("\n", "")] {
            assert_eq!(without_newline(text), value);
        }
    }
}
