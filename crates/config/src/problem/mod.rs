//! Errors and warnings about a rule file, each with its location and a suggestion.

pub(crate) mod secrets;
pub mod suggest;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use self::secrets::Secrets;
use tidegate_rules::limits::rule::LimitLocation;

/// An error or a warning about a rule file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    location: Location,
    /// The included file, or the part of rules that a program built. `None` for the rule file.
    file: Option<Arc<str>>,
    /// Borrowed if it contains no values of the file.
    message: Cow<'static, str>,
    help: Cow<'static, str>,
}

/// All errors of rules: of a rule file and its included files, or of rules that a program built. In the order of their
/// locations.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Problems {
    /// The rule file, and the included files.
    files: Vec<Arc<str>>,
    errors: BTreeSet<Problem>,
    /// Valid values that are probably not intended.
    warnings: BTreeSet<Problem>,
    /// Boxed, so that an error is small.
    notes: Box<Notes>,
}

/// A part of rules that a program built: a route, a limit or a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// The name in messages.
    name: Arc<str>,
    /// The position among parts of the same kind, starting at 1.
    position: usize,
}

/// Locations and texts that decide how errors are reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Notes {
    /// The parts of rules that a program built.
    parts: Vec<Part>,
    /// Keys that were reported as misspelt, with the locations of their maps.
    misspelt: BTreeSet<(Location, &'static str)>,
    /// Keys that a map does not need, with the locations of the maps.
    unneeded: BTreeSet<(Location, &'static str)>,
    /// The locations of maps with a merge key, which may add any keys.
    merged: BTreeSet<Location>,
    /// The locations of values that come from files.
    secret_places: BTreeSet<Location>,
    /// The texts that come from files.
    secrets: Secrets,
    /// The locations of values that are not known, and pass every check.
    unknown: BTreeSet<Location>,
    /// Whether the path of an included file is not known, which may have any upstreams and routes.
    has_unknown_file: bool,
}

/// A position in the file. Lines and columns start at 1. Small, because a large rule file has hundreds of thousands. In rules
/// that a program built, the number of a part as the line, and 0 as the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The number of the file: 0 for the rule file, and more for an included file.
    pub file: u16,
    line: NonZeroU32,
    column: u32,
}

/// Proof that an error was reported, in place of the value. Only [`Problems`] creates it.
#[derive(Clone, Copy, Debug)]
pub struct Reported(());

/// A checked value, or the proof that an error was reported.
pub(crate) type Checked<T> = Result<T, Reported>;

/// Displays problems, each with the name of the file if there is one.
struct ProblemReport<'p>(&'p Problems, Option<&'p Path>);

/// The highest number of characters of a value in a message.
const MAX_QUOTED: usize = 80;

// === impl Location ===

impl Location {
    /// The location of errors that concern the whole file.
    pub const START: Location = Location::start_of(0);

    /// Returns a location in the file with this number.
    pub fn new(file: u16, line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { file, line: NonZeroU32::new(number(line)).unwrap_or(NonZeroU32::MIN), column: number(column) }
    }

    /// Returns the location of errors that concern a whole file.
    pub const fn start_of(file: u16) -> Self {
        Self { file, line: NonZeroU32::MIN, column: 1 }
    }

    /// Returns `true` for a part of rules that a program built.
    fn is_part(self) -> bool {
        self.column == 0
    }

    pub fn line(self) -> usize {
        self.line.get() as usize
    }

    pub fn column(self) -> usize {
        self.column as usize
    }
}

// === impl Problem ===

impl Problem {
    /// Returns the line, starting at 1. Returns `None` for rules that a program built.
    pub fn line(&self) -> Option<usize> {
        (!self.location.is_part()).then(|| self.location.line())
    }

    /// Returns the column in characters, starting at 1. Returns `None` for rules that a program built.
    pub fn column(&self) -> Option<usize> {
        (!self.location.is_part()).then(|| self.location.column())
    }

    /// Returns the included file with the problem, or `None` for the rule file.
    #[doc(hidden)]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Returns the number of the file with the problem: 0 for the rule file, and more for an included file.
    pub(crate) fn file_number(&self) -> u16 {
        self.location.file
    }

    /// Displays the problem with its file, which is `main` unless an included file has the problem.
    #[doc(hidden)]
    pub fn in_file(&self, main: &impl fmt::Display) -> String {
        if self.file.is_some() { self.to_string() } else { format!("{main}:{self}") }
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

    /// Adds the rule file, or an included file. Returns its number.
    pub(crate) fn add_file(&mut self, path: &Path) -> u16 {
        let number = u16::try_from(self.files.len()).unwrap_or(u16::MAX);
        self.files.push(path.to_string_lossy().into());
        number
    }

    /// Returns the name of the file with this location.
    pub(crate) fn file_of(&self, location: Location) -> Arc<str> {
        self.files.get(usize::from(location.file)).cloned().unwrap_or_else(|| "".into())
    }

    /// Returns the number of files: of the rule file and the files that are parts of it.
    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns the names of the files with these numbers.
    pub(crate) fn file_names(&self, numbers: Range<usize>) -> Vec<String> {
        self.files.get(numbers).unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// Adds a part of rules that a program built, such as "route `login`". Returns its location.
    pub(crate) fn add_part(&mut self, name: &str, position: usize) -> Location {
        self.notes.parts.push(Part { name: name.into(), position });
        Location::new(0, self.notes.parts.len(), 0)
    }

    fn part(&self, location: Location) -> Option<&Part> {
        if location.is_part() { self.notes.parts.get(location.line() - 1) } else { None }
    }

    /// Returns the included file or the part with this location. Returns `None` for the rule file.
    fn origin(&self, location: Location) -> Option<Arc<str>> {
        match self.part(location) {
            Some(part) => Some(Arc::clone(&part.name)),
            None => (location.file > 0).then(|| self.file_of(location)),
        }
    }

    /// Returns the position of a limit for operators.
    pub(crate) fn limit_location(&self, location: Location) -> LimitLocation {
        match location.is_part() {
            true => LimitLocation::default(),
            false => LimitLocation { file: self.file_of(location), line: location.line() },
        }
    }

    /// Describes a location for a message about another location.
    pub(crate) fn place(&self, location: Location, other: Location) -> String {
        match (self.part(location), location.file == other.file) {
            (Some(part), _) => format!("at position {}", part.position),
            (None, true) => format!("on line {}", location.line()),
            (None, false) => format!("on line {} of {}", location.line(), quote(&self.file_of(location))),
        }
    }

    /// Adds a warning. The file is still accepted.
    #[doc(hidden)]
    pub fn warn(&mut self, location: Location, message: &str, help: impl Into<Cow<'static, str>>) {
        let message = format!("warning: {message}").into();
        let file = self.origin(location);
        self.warnings.insert(Problem { location, file, message, help: help.into() });
    }

    /// Removes and returns the warnings.
    #[doc(hidden)]
    pub fn take_warnings(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.warnings).into_iter().collect()
    }

    /// Adds an error. Duplicates, which aliases can cause, count once.
    #[doc(hidden)]
    pub fn add(
        &mut self,
        location: Location,
        message: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
    ) -> Reported {
        let file = self.origin(location);
        self.errors.insert(Problem { location, file, message: message.into(), help: help.into() });
        Reported(())
    }

    /// Records that a key of the map at this location is misspelt, which has been reported.
    #[doc(hidden)]
    pub fn note_misspelt(&mut self, map: Location, key: &'static str) {
        self.notes.misspelt.insert((map, key));
    }

    /// Records that the map at this location has a merge key, which has been reported.
    #[doc(hidden)]
    pub fn note_merged(&mut self, map: Location) {
        self.notes.merged.insert(map);
    }

    /// Records that the map at this location needs no such key.
    pub(crate) fn note_unneeded(&mut self, map: Location, key: &'static str) {
        self.notes.unneeded.insert((map, key));
    }

    /// Reports that the map at this location lacks a key, unless the key was reported as misspelt, may be merged, or is not
    /// needed.
    #[doc(hidden)]
    pub fn add_missing(
        &mut self,
        map: Location,
        key: &'static str,
        message: String,
        help: impl Into<Cow<'static, str>>,
    ) -> Reported {
        let is_known = [&self.notes.misspelt, &self.notes.unneeded].iter().any(|keys| keys.contains(&(map, key)));
        match is_known || self.notes.merged.contains(&map) {
            true => Reported(()),
            false => self.add(map, message, help),
        }
    }

    /// Records that the value at this location comes from a file.
    pub(crate) fn note_secret_at(&mut self, location: Location) {
        self.notes.secret_places.insert(location);
    }

    /// Records texts that come from files.
    pub(crate) fn add_secrets(&mut self, texts: &[String]) {
        texts.iter().for_each(|text| self.notes.secrets.add(text));
    }

    /// Returns the texts that come from files.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.notes.secrets
    }

    /// Masks values that come from files. `is_public` returns `true` for fixed words, such as keys.
    pub(crate) fn mask(&mut self, is_public: impl Fn(&str) -> bool) {
        let Self { errors, warnings, notes, .. } = self;
        let mask = |text: Cow<'static, str>, location| match text {
            Cow::Owned(text) if notes.secret_places.contains(&location) => {
                notes.secrets.mask(&mask_quoted(&text, &is_public)).into_owned().into()
            }
            Cow::Owned(text) => notes.secrets.mask(&text).into_owned().into(),
            Cow::Borrowed(text) => text.into(),
        };
        for problems in [errors, warnings] {
            let masked = std::mem::take(problems).into_iter().map(|Problem { location, file, message, help }| {
                Problem { location, file, message: mask(message, location), help: mask(help, location) }
            });
            problems.extend(masked);
        }
    }

    /// Records a value that is not known, with a warning. The value passes every check.
    pub(crate) fn add_unknown(&mut self, location: Location, cause: &str) -> Reported {
        self.notes.unknown.insert(location);
        let message = format!("unknown value: {cause}");
        self.warn(location, &message, "the value was not checked: `check` without `--no-files` does so");
        Reported(())
    }

    /// Returns the number of values that are not known.
    pub(crate) fn unknown_values(&self) -> usize {
        self.notes.unknown.len()
    }

    /// Records that the path of an included file is not known. `root` is the map of the rule file.
    pub(crate) fn note_unknown_file(&mut self, root: Location) {
        self.notes.has_unknown_file = true;
        self.note_merged(root);
    }

    /// Returns `true` if an included file is not known.
    pub(crate) fn has_unknown_file(&self) -> bool {
        self.notes.has_unknown_file
    }

    /// Returns the proof for a value that an earlier step has reported. Reports a bug if that step has reported
    /// nothing: otherwise the file would be accepted without the value.
    #[doc(hidden)]
    pub fn reported(&mut self, location: Location) -> Reported {
        if self.is_empty() && self.notes.unknown.is_empty() {
            return self.add(
                location,
                "this value could not be validated",
                "this is a bug in tidegate; please report it",
            );
        }
        Reported(())
    }
}

/// Displays `LINE:COLUMN: message` and a line of help, or `PART: message` for rules that a program built.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, file, message, help } = self;
        file.as_ref().map_or(Ok(()), |file| write!(f, "{file}:"))?;
        if !location.is_part() {
            write!(f, "{}:{}:", location.line(), location.column())?;
        }
        write!(f, " {message}\n  help: {help}")
    }
}

/// Prints the text of [`Display`](fmt::Display): `main` and `unwrap` show errors with `Debug`.
impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
            match self.1 {
                Some(file) => writeln!(f, "{}", problem.in_file(&file.display()))?,
                None => writeln!(f, "{problem}")?,
            }
        }
        match self.0.len() {
            1 => f.write_str("1 error"),
            count => write!(f, "{count} errors"),
        }
    }
}

/// Returns `value` in backticks: on one line, shortened, and without the credentials of a URL.
pub fn quote(value: &str) -> String {
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
pub fn quote_all<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(", ")
}
