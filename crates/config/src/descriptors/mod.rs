//! The files of envoyproxy/ratelimit: a domain with its descriptors in each file.
//!
//! A file that envoyproxy/ratelimit accepts is accepted, except for keys that Tidegate does not support yet. Values without an
//! effect are warnings.

mod limit;
mod map;
mod rule;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use self::map::Map;
use self::rule::read_rules;
use crate::check::names::duplicates;
use crate::problem::{Checked, Location, Problem, Problems};
use crate::sources::SourceFiles;
use crate::sources::text::decode;
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};
use tidegate_rules::settings::store::BucketNames;
use tidegate_service::{Domain, Domains, Rule, Window};

/// The domains of the files, and their warnings.
#[derive(Debug)]
pub struct DescriptorFiles {
    /// The domains.
    pub domains: Domains,
    /// Valid values that are probably not intended, or have no effect.
    pub warnings: Vec<Problem>,
}

/// The content of one file.
struct DomainFile {
    name: String,
    location: Location,
    rules: Vec<Rule>,
}

/// Reads files of envoyproxy/ratelimit, each a path for messages and the content. `window` is the algorithm of all limits, and
/// `names` are the names of buckets in the store.
///
/// # Errors
/// Returns all errors of all files, with their positions.
pub fn read_descriptors(
    files: &[(PathBuf, Vec<u8>)],
    window: Window,
    names: &BucketNames,
) -> Result<DescriptorFiles, Problems> {
    let mut problems = Problems::default();
    problems.add_file(Path::new("")); // number 0 stands for the rule file
    let mut usage = Usage::default();
    let read = |(path, bytes): &(PathBuf, Vec<u8>)| {
        let number = problems.add_file(path);
        read_file(bytes.clone(), number, window, &mut usage, &mut problems).ok()
    };
    let files: Vec<_> = files.iter().filter_map(read).collect();
    duplicates(files.iter().map(|file| (file.name.as_str(), file.location)), "domain", &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let domains = build(&files, window, names, &mut problems).map_err(|_| problems.clone())?;
    Ok(DescriptorFiles { domains, warnings: problems.take_warnings() })
}

/// Reads the file with this number.
fn read_file(
    bytes: Vec<u8>,
    number: u16,
    window: Window,
    usage: &mut Usage,
    problems: &mut Problems,
) -> Checked<DomainFile> {
    let text = decode(bytes, number, problems)?;
    let is_blank = |line: &str| matches!(line.trim_start().chars().next(), None | Some('#')) || line.trim() == "---";
    if text.lines().all(is_blank) {
        return Err(problems.add(Location::start_of(number), "the file is empty", "add `domain` and `descriptors`"));
    }
    let mut sources = SourceFiles::default();
    let root = yaml::read(&text, number, usage, &mut Placeholders::literal(&mut sources), problems)?;
    let map = Map::read(&root, "a file", &["domain", "descriptors"], problems)?;
    let rules = read_rules(map.list("descriptors", problems), window, problems);
    let (name, location) = match map.text("domain", problems)? {
        Some((name, location)) => (name.to_owned(), location),
        None => {
            return Err(problems.add(root.location, "`domain` is missing", "name the domain of the proxy's filter"));
        }
    };
    Ok(DomainFile { name, location, rules })
}

/// Builds the domains of valid files.
fn build(files: &[DomainFile], window: Window, names: &BucketNames, problems: &mut Problems) -> Checked<Domains> {
    let domain = |DomainFile { name, location, rules }: &DomainFile| {
        let domain = Domain::new(name.clone(), rules, window, names);
        domain.map_err(|error| problems.add(*location, error.to_string(), "divide the limits into several domains"))
    };
    let domains = files.iter().map(domain).collect::<Checked<Vec<_>>>()?;
    Domains::new(domains).map_err(|error| problems.add(Location::START, error.to_string(), "rename a domain"))
}
