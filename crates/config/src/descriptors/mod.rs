//! The files of envoyproxy/ratelimit: a domain with its descriptors in each file.
//!
//! A file that envoyproxy/ratelimit accepts is accepted, except for keys that Tidegate does not support yet. Values without an
//! effect are warnings.

mod limit;
mod map;
mod metadata;
mod rule;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::map::Map;
use self::rule::{read_rules, report_duplicate};
use crate::problem::{Checked, Location, Problems};
use crate::sources::SourceFiles;
use crate::yaml::node::Node;
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};
use tidegate_service::{Call, Rule, Unit};

/// The longest key or value of a rule, and the longest name of a domain, in bytes: names of limits contain them.
pub(crate) const MAX_TEXT: usize = 1_024;

/// The files that a rule file names.
#[derive(Debug)]
pub(crate) struct DescriptorFiles {
    /// The number of the first file.
    first: usize,
    /// The number of files.
    count: usize,
    /// The domains of the files without errors.
    pub(crate) domains: Vec<DomainFile>,
}

/// The content of one file, or of several files of a domain.
#[derive(Clone, Debug)]
pub(crate) struct DomainFile {
    /// The name of the domain.
    pub(crate) name: String,
    /// The location of the name.
    pub(crate) location: Location,
    /// The rules of the first level.
    pub(crate) rules: Vec<Rule>,
    /// The locations of these rules.
    pub(crate) locations: Vec<Location>,
    /// The units of limits whose calendar windows differ from the windows of envoyproxy/ratelimit.
    pub(crate) long_units: LongUnits,
}

/// Units that are longer than a day, with their locations.
pub(crate) type LongUnits = Vec<(Unit, Location)>;

impl DescriptorFiles {
    /// Creates an empty list of files, whose first file has this number.
    pub(crate) fn after(first: usize) -> Self {
        Self { first, count: 0, domains: Vec::new() }
    }

    /// Adds the next file.
    pub(crate) fn add(&mut self, file: Checked<DomainFile>) {
        self.count += 1;
        self.domains.extend(file.ok());
    }

    /// Returns the numbers of the files.
    pub(crate) fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Returns `true` if each file has a domain.
    pub(crate) fn are_complete(&self) -> bool {
        self.count == self.domains.len()
    }
}

impl DomainFile {
    /// Adds the rules of another file of the domain. Reports rules that are already present.
    pub(crate) fn append(&mut self, other: &Self, problems: &mut Problems) {
        for (rule, location) in other.rules.iter().zip(&other.locations) {
            let is_same = |own: &Rule| (&own.key, &own.value) == (&rule.key, &rule.value);
            match self.rules.iter().position(is_same) {
                Some(first) => report_duplicate(rule, self.locations[first], *location, problems),
                None => {
                    self.rules.push(rule.clone());
                    self.locations.push(*location);
                }
            }
        }
        self.long_units.extend(&other.long_units);
    }
}

/// Reads the text of the file with this number.
pub(crate) fn read_file(
    text: &str,
    number: u16,
    usage: &mut Usage,
    sources: &mut SourceFiles,
    problems: &mut Problems,
) -> Checked<DomainFile> {
    let is_blank = |line: &str| matches!(line.trim_start().chars().next(), None | Some('#')) || line.trim() == "---";
    if text.lines().all(is_blank) {
        return Err(problems.add(Location::start_of(number), "the file is empty", "add `domain` and `descriptors`"));
    }
    let root = yaml::read(text, number, usage, &mut Placeholders::literal(sources), problems)?;
    read_domain(&root, "a file", problems)
}

/// Reads a domain with its descriptors. `what` describes the map.
pub(crate) fn read_domain(root: &Node, what: &str, problems: &mut Problems) -> Checked<DomainFile> {
    let map = Map::read(root, what, &["domain", "descriptors"], problems)?;
    let mut long_units = LongUnits::new();
    let rules = read_rules(map.list("descriptors", problems), &mut long_units, problems);
    let (rules, locations) = rules.into_iter().unzip();
    let Some((name, location)) = map.text("domain", problems)? else {
        return Err(problems.add(root.location, "`domain` is missing", "name the domain of the proxy's filter"));
    };
    check_name(name, location, problems)?;
    Ok(DomainFile { name: name.to_owned(), location, rules, locations, long_units })
}

/// Reports the name of a domain that is too long.
fn check_name(name: &str, location: Location, problems: &mut Problems) -> Checked<()> {
    const { assert!(MAX_TEXT <= Call::MAX_TEXT, "calls can have the texts of rules") };
    if name.len() <= MAX_TEXT {
        return Ok(());
    }
    Err(problems.add(location, format!("the name of a domain has at most {MAX_TEXT} bytes"), "shorten it"))
}
