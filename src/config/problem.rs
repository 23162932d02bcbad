//! The mistakes of a rule file: where each one is, what it is, and what to do about it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// One mistake of a rule file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    location: Location,
    message: String,
    help: String,
}

/// All the mistakes of a rule file, in the order of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    found: BTreeSet<Problem>,
    /// Values that are valid and probably not what the operator means.
    warnings: BTreeSet<Problem>,
    /// Keys that a map has under a name that is nearly theirs, by the place of the map.
    misspelt: BTreeSet<(Location, &'static str)>,
}

/// A character of the file; both numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Stands for a value that has been reported. Only [`Problems`] makes one, so whatever is missing has its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken(());

/// Mistakes with the file's name before each location.
struct Named<'p>(&'p Problems, Option<&'p Path>);

/// The longest part of a value that a message repeats, in characters.
const LONGEST_QUOTE: usize = 80;

// === impl Location ===

impl Location {
    /// Where a mistake of the whole file is reported.
    pub(crate) const START: Location = Location { line: 1, column: 1 };
}

// === impl Problem ===

impl Problem {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.location.line
    }

    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.location.column
    }

    /// What is wrong, with the value; never a secret.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right.
    pub fn help(&self) -> &str {
        &self.help
    }
}

// === impl Problems ===

impl Problems {
    /// The mistakes, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.found.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Shows them as `FILE:LINE:COLUMN: message`, a line of help after each, and their number.
    pub fn in_file<'p>(&'p self, file: &'p Path) -> impl fmt::Display + 'p {
        Named(self, Some(file))
    }

    /// Adds a warning: it is reported, and the file is accepted.
    pub(crate) fn warn(&mut self, location: Location, message: &str, help: impl Into<String>) {
        let message = format!("warning: {message}");
        self.warnings.insert(Problem { location, message, help: help.into() });
    }

    /// Removes and returns the warnings.
    pub(crate) fn take_warnings(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.warnings).into_iter().collect()
    }

    /// Adds a mistake. The same one twice, as when an alias repeats it, is one.
    pub(crate) fn add(&mut self, location: Location, message: impl Into<String>, help: impl Into<String>) -> Broken {
        self.found.insert(Problem { location, message: message.into(), help: help.into() });
        Broken(())
    }

    /// Notes that the map here has this key under a name that is nearly its own, which has been reported.
    pub(crate) fn misspelt(&mut self, map: Location, key: &'static str) {
        self.misspelt.insert((map, key));
    }

    /// Adds that the map here lacks a key, unless it is there under a name that is nearly its own: that says it all.
    pub(crate) fn lacks(
        &mut self,
        map: Location,
        key: &'static str,
        message: String,
        help: impl Into<String>,
    ) -> Broken {
        match self.misspelt.contains(&(map, key)) {
            true => Broken(()),
            false => self.add(map, message, help),
        }
    }

    /// What is missing because an earlier step has reported it. Were it not so, the file would be half understood, so
    /// this step says it.
    pub(crate) fn reported(&mut self, location: Location) -> Broken {
        if self.is_empty() {
            return self.add(location, "this could not be understood", "this is a bug of tidegate: please report it");
        }
        Broken(())
    }
}

/// As `LINE:COLUMN: message`, with a line of help.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, message, help } = self;
        write!(f, "{}:{}: {message}\n  help: {help}", location.line, location.column)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Named(self, None).fmt(f)
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.0.found.iter().chain(&self.0.warnings) {
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

/// `value` in backticks: on one line, not too long, and without the credentials that a URL may carry.
pub(crate) fn quote(value: &str) -> String {
    let value = match (value.find("://"), value.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &value[..scheme + 3], &value[at..]),
        _ => value.to_owned(),
    };
    let mut quoted = String::from("`");
    for (count, letter) in value.chars().enumerate() {
        if count == LONGEST_QUOTE {
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

/// Words in backticks, as in "`a`, `b`".
pub(crate) fn quote_all<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_one_short_line_without_credentials() {
        assert_eq!(quote("a\nb\u{1b}[2J"), "`a\\nb\\u{1b}[2J`");
        assert_eq!(quote("http://user:hu@sh@host/x"), "`http://***@host/x`");
        assert_eq!(quote(&"x".repeat(1000)).len(), LONGEST_QUOTE + "``...".len());
    }

    #[test]
    fn mistakes_are_shown_in_the_order_of_their_places_and_once() {
        let mut problems = Problems::default();
        let location = |line, column| Location { line, column };
        problems.add(location(10, 1), "third", "c");
        problems.add(location(9, 20), "second", "b");
        problems.add(location(9, 3), "first", "a");
        problems.add(location(9, 3), "first", "a");
        let shown = problems.in_file(Path::new("rules.yaml")).to_string();
        let places: Vec<_> = shown.lines().step_by(2).collect();
        assert_eq!(places, ["rules.yaml:9:3: first", "rules.yaml:9:20: second", "rules.yaml:10:1: third", "3 errors"]);
    }
}
