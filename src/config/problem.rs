//! Errors and warnings about a rule file, each with its location and a suggestion.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::secrets::Secrets;

/// An error or a warning about a rule file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    location: Location,
    /// Borrowed if it contains no values of the file.
    message: Cow<'static, str>,
    help: Cow<'static, str>,
}

/// All errors of a rule file, in the order of their locations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    errors: BTreeSet<Problem>,
    /// Valid values that are probably not intended.
    warnings: BTreeSet<Problem>,
    /// Keys that were reported as misspelt, with the locations of their maps.
    misspelt: BTreeSet<(Location, &'static str)>,
    /// The locations of maps with a merge key, which may add any keys.
    merged: BTreeSet<Location>,
    /// The locations of values that come from files.
    secret_places: BTreeSet<Location>,
    /// The texts that come from files.
    secrets: Secrets,
}

/// A position in the file. Lines and columns start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
pub(crate) struct Location {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Proof that an error was reported, in place of the value. Only [`Problems`] creates it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported(());

/// A checked value, or the proof that an error was reported.
pub(crate) type Checked<T> = Result<T, Reported>;

/// Displays problems, each with the name of the file if there is one.
struct ProblemReport<'p>(&'p Problems, Option<&'p Path>);

/// The highest number of characters of a value in a message.
const MAX_QUOTED: usize = 80;

// === impl Location ===

impl Location {
    /// The location of errors that concern the whole file.
    pub(crate) const START: Location = Location { line: 1, column: 1 };
}

// === impl Problem ===

impl Problem {
    /// Returns the line, starting at 1.
    pub fn line(&self) -> usize {
        self.location.line
    }

    /// Returns the column in characters, starting at 1.
    pub fn column(&self) -> usize {
        self.location.column
    }

    /// Returns the message with the value. It contains no secrets.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns a suggestion.
    pub fn help(&self) -> &str {
        &self.help
    }
}

// === impl Problems ===

impl Problems {
    /// Returns the errors in the order of their locations.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.errors.iter()
    }

    /// Returns the number of errors.
    pub fn len(&self) -> usize {
        self.errors.len()
    }

    /// Returns `true` if there are no errors.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Displays each problem as `FILE:LINE:COLUMN: message` with a line of help, and then the number of errors.
    pub fn in_file<'p>(&'p self, file: &'p Path) -> impl fmt::Display + 'p {
        ProblemReport(self, Some(file))
    }

    /// Adds a warning. The file is still accepted.
    pub(crate) fn warn(&mut self, location: Location, message: &str, help: impl Into<Cow<'static, str>>) {
        let message = format!("warning: {message}").into();
        self.warnings.insert(Problem { location, message, help: help.into() });
    }

    /// Removes and returns the warnings.
    pub(crate) fn take_warnings(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.warnings).into_iter().collect()
    }

    /// Adds an error. Duplicates, which aliases can cause, count once.
    pub(crate) fn add(
        &mut self,
        location: Location,
        message: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
    ) -> Reported {
        self.errors.insert(Problem { location, message: message.into(), help: help.into() });
        Reported(())
    }

    /// Records that a key of the map at this location is misspelt, which has been reported.
    pub(crate) fn note_misspelt(&mut self, map: Location, key: &'static str) {
        self.misspelt.insert((map, key));
    }

    /// Records that the map at this location has a merge key, which has been reported.
    pub(crate) fn note_merged(&mut self, map: Location) {
        self.merged.insert(map);
    }

    /// Reports that the map at this location lacks a key, unless the key was reported as misspelt or may be merged.
    pub(crate) fn add_missing(
        &mut self,
        map: Location,
        key: &'static str,
        message: String,
        help: impl Into<Cow<'static, str>>,
    ) -> Reported {
        match self.misspelt.contains(&(map, key)) || self.merged.contains(&map) {
            true => Reported(()),
            false => self.add(map, message, help),
        }
    }

    /// Records that the value at this location comes from a file.
    pub(super) fn note_secret_at(&mut self, location: Location) {
        self.secret_places.insert(location);
    }

    /// Records texts that come from files.
    pub(super) fn add_secrets(&mut self, texts: &[String]) {
        texts.iter().for_each(|text| self.secrets.add(text));
    }

    /// Returns the texts that come from files.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Masks values that come from files. `is_public` returns `true` for fixed words, such as keys.
    pub(super) fn mask(&mut self, is_public: impl Fn(&str) -> bool) {
        let Self { errors, warnings, secret_places, secrets, .. } = self;
        let mask = |text: Cow<'static, str>, location| match text {
            Cow::Owned(text) if secret_places.contains(&location) => {
                secrets.mask(&mask_quoted(&text, &is_public)).into_owned().into()
            }
            Cow::Owned(text) => secrets.mask(&text).into_owned().into(),
            Cow::Borrowed(text) => text.into(),
        };
        for problems in [errors, warnings] {
            let masked = std::mem::take(problems).into_iter().map(|Problem { location, message, help }| Problem {
                location,
                message: mask(message, location),
                help: mask(help, location),
            });
            *problems = masked.collect();
        }
    }

    /// Returns the proof for a value that an earlier step has reported. Reports a bug if that step has reported
    /// nothing: otherwise the file would be accepted without the value.
    pub(crate) fn reported(&mut self, location: Location) -> Reported {
        if self.is_empty() {
            return self.add(
                location,
                "this value could not be validated",
                "this is a bug in tidegate; please report it",
            );
        }
        Reported(())
    }
}

/// Displays `LINE:COLUMN: message` and a line of help.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, message, help } = self;
        write!(f, "{}:{}: {message}\n  help: {help}", location.line, location.column)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ProblemReport(self, None).fmt(f)
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for ProblemReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.0.errors.iter().chain(&self.0.warnings) {
            if let Some(file) = self.1 {
                write!(f, "{}:", file.display())?;
            }
            writeln!(f, "{problem}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 error"),
            count => write!(f, "{count} errors"),
        }
    }
}

/// Returns `value` in backticks: on one line, shortened, and without the credentials of a URL.
pub(crate) fn quote(value: &str) -> String {
    let value = match (value.find("://"), value.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &value[..scheme + 3], &value[at..]),
        _ => value.to_owned(),
    };
    let mut quoted = String::from("`");
    for (count, letter) in value.chars().enumerate() {
        if count == MAX_QUOTED {
            quoted.push_str("...");
            break;
        }
        match letter.is_control() {
            true => quoted.extend(letter.escape_default()),
            false => quoted.push(letter),
        }
    }
    quoted.push('`');
    quoted
}

/// Replaces the quoted parts of a message from the first one that is not public: a value may contain backticks.
fn mask_quoted(message: &str, is_public: impl Fn(&str) -> bool) -> String {
    let mut start = 0;
    for (number, part) in message.split('`').enumerate() {
        if let (1, false, Some(end)) = (number % 2, is_public(part), message.rfind('`')) {
            return format!("{}***{}", &message[..start], &message[end.max(start)..]);
        }
        start += part.len() + 1;
    }
    message.to_owned()
}

/// Returns words in backticks, separated by commas.
pub(crate) fn quote_all<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_is_one_short_line_without_credentials() {
        assert_eq!(quote("a\nb\u{1b}[2J"), "`a\\nb\\u{1b}[2J`");
        assert_eq!(quote("http://user:hu@sh@host/x"), "`http://***@host/x`");
        assert_eq!(quote(&"x".repeat(1000)).len(), MAX_QUOTED + "``...".len());
    }

    #[test]
    fn errors_are_sorted_by_location_without_duplicates() {
        let mut problems = Problems::default();
        let location = |line, column| Location { line, column };
        problems.add(location(10, 1), "third", "c");
        problems.add(location(9, 20), "second", "b");
        problems.add(location(9, 3), "first", "a");
        problems.add(location(9, 3), "first", "a");
        let shown = problems.in_file(Path::new("rules.yaml")).to_string();
        let lines: Vec<_> = shown.lines().step_by(2).collect();
        assert_eq!(lines, ["rules.yaml:9:3: first", "rules.yaml:9:20: second", "rules.yaml:10:1: third", "3 errors"]);
    }
}
