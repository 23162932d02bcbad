//! The domains: of the files with descriptors, and of the rule file.

use std::borrow::Cow;

use super::algorithms::Algorithms;
use super::answers::answers;
use super::limit::{CheckedLimit, limit};
use super::tree::tree;
use crate::check::all;
use crate::check::names::duplicates;
use crate::descriptors::{DescriptorFiles, DomainFile};
use crate::file::located::{Located, ValueOrMap};
use crate::file::{self, File};
use crate::problem::{Checked, Location, Problems};
use tidegate_rules::settings::store::BucketNames;
use tidegate_service::{Domain, Domains, Modes, Rule, Window};

/// Converts all domains.
pub(super) fn domains(
    (file, raw): (&File, &file::Service),
    descriptors: &DescriptorFiles,
    algorithms: &Checked<Algorithms<'_>>,
    names: &BucketNames,
    problems: &mut Problems,
) -> Checked<Domains> {
    let own = raw.domains.optional(problems);
    let own_names = || raw.domains.items().iter().filter_map(|domain| domain.get());
    let own_names = || own_names().filter_map(|domain| Some((domain.name.get()?.as_str(), domain.name.location)));
    let file_names = || descriptors.domains.iter().map(|file| (file.name.as_str(), file.location));
    let (merges, answers, modes) =
        (raw.merge_domains.or_default(problems), answers(file, raw, problems), modes(raw, problems));
    let merged = merged(&descriptors.domains, merges.unwrap_or(true), problems);
    let merged_names = || merged.iter().map(|file| (file.name.as_str(), file.location));
    duplicates(merged_names().chain(own_names()), "domain", problems);
    let has_control_plane = matches!(raw.descriptors.get(), Some(ValueOrMap::Map(_)));
    let are_known = descriptors.are_complete() && own.is_ok() && problems.unknown_values() == 0 && !has_control_plane;
    if let (Ok(algorithms), true) = (algorithms, are_known) {
        algorithms.check_names(&file_names().chain(own_names()).map(|(name, _)| name), problems);
    }
    let window_of = |name: &str| algorithms.as_ref().map(|known| known.of(name)).map_err(|reported| *reported);
    let of_files = merged.iter().map(|file| of_file(file, window_of(&file.name), names, problems));
    let of_files = all(of_files);
    let of_rules = all(own?.into_iter().flatten().map(|raw| of_rules(raw, &window_of, names, problems)));
    merges?;
    let (domains, empty) = (of_files?.into_iter().chain(of_rules?), Domains::with_settings(answers?, modes?));
    empty.with(domains).map_err(|_| problems.reported(raw.domains.location))
}

fn modes(raw: &file::Service, problems: &mut Problems) -> Checked<Modes> {
    let (shadow, quota) = (raw.shadow.or_default(problems), raw.quota_mode.or_default(problems));
    Ok(Modes { shadow: shadow?, quota: quota? })
}

/// Joins files of the same domain if this `is_allowed`. The rules keep the order of the files.
pub(super) fn merged<'f>(
    files: &'f [DomainFile],
    is_allowed: bool,
    problems: &mut Problems,
) -> Vec<Cow<'f, DomainFile>> {
    let mut merged: Vec<Cow<'f, DomainFile>> = Vec::with_capacity(files.len());
    for file in files {
        let same = merged.iter_mut().find(|other| is_allowed && other.name == file.name);
        match same {
            Some(other) => other.to_mut().append(file, problems),
            None => merged.push(Cow::Borrowed(file)),
        }
    }
    merged
}

/// Converts the domain of a file.
pub(super) fn of_file(
    file: &DomainFile,
    window: Checked<Window>,
    names: &BucketNames,
    problems: &mut Problems,
) -> Checked<Domain> {
    if let Ok(Window::FixedWindow) = window {
        for (unit, location) in &file.long_units {
            let message = format!("envoyproxy/ratelimit has other windows of a {}", unit.name());
            let help = "weeks start on Monday, months are calendar months, and a year starts with each request";
            problems.warn(*location, &message, help);
        }
    }
    build((&file.name, file.location), &file.rules, window, names, problems)
}

/// Converts a domain of the rule file.
fn of_rules(
    raw: &Located<file::Domain>,
    window_of: &impl Fn(&str) -> Checked<Window>,
    names: &BucketNames,
    problems: &mut Problems,
) -> Checked<Domain> {
    let raw = raw.required(problems)?;
    let name = raw.name.required(problems);
    let window = name.and_then(|name| window_of(name));
    let named = raw.limits.items().iter().filter_map(|limit| Some(&limit.get()?.keys.name));
    duplicates(named.filter_map(|name| Some((name.get()?.as_str(), name.location))), "limit", problems);
    let limits: Checked<Vec<CheckedLimit>> = all(raw.limits.items().iter().map(|raw| limit(raw, window, problems)));
    raw.limits.required(problems)?;
    let rules = limits.and_then(|limits| tree(limits, problems));
    let name = name?;
    build((name, raw.name.location), &rules?, window, names, problems)
}

fn build(
    (name, location): (&str, Location),
    rules: &[Rule],
    window: Checked<Window>,
    names: &BucketNames,
    problems: &mut Problems,
) -> Checked<Domain> {
    let domain = Domain::new(name.to_owned(), rules, window?, names);
    domain.map_err(|error| problems.add(location, error.to_string(), "divide the limits into several domains"))
}
