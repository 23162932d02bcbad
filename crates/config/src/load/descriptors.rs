//! Reads the files of `descriptors` of `service`.

use std::path::PathBuf;

use super::part_files::{MAX_FILES, PartFiles, PartKey};
use super::paths::expand;
use crate::Source;
use crate::descriptors::{DescriptorFiles, read_file};
use crate::file::keys::Kind;
use crate::file::read::read_item;
use crate::problem::{Location, Problems};
use crate::yaml::Usage;
use crate::yaml::node::{Node, Value};
use crate::yaml::placeholders::Placeholders;

/// Reads the files that the rule file names, and reports their errors.
pub(super) fn read_descriptors<'p>(
    root: &Node,
    source: Source<'p>,
    usage: &mut Usage,
    placeholders: &mut Placeholders<'p>,
    problems: &mut Problems,
) -> DescriptorFiles {
    let mut files = DescriptorFiles::after(problems.file_count());
    let entries = root.get("service").and_then(|service| service.get("descriptors"));
    // A map names a control plane.
    let Some(entries) = entries.filter(|entries| !matches!(entries.value, Value::Map(_))) else { return files };
    let paths = paths_of(entries, source, placeholders, problems);
    if let Some((_, location)) = paths.get(MAX_FILES) {
        let message = format!("more than {MAX_FILES} {}", PartKey::Descriptors.files());
        placeholders.sources().record_error(&message);
        problems.add(*location, message, "combine files");
        return files;
    }
    let mut parts = PartFiles::new(PartKey::Descriptors, source, usage, placeholders, problems);
    for (path, location) in paths {
        let number = parts.problems.add_file(&path);
        let Ok(Some(text)) = parts.read(&path, number, location) else {
            parts.placeholders.sources().mark_incomplete();
            parts.keep(&path, None, None);
            files.add(Err(parts.problems.reported(location)));
            continue;
        };
        files.add(read_file(&text, number, parts.usage, parts.placeholders.sources(), parts.problems));
        parts.keep(&path, None, Some(text));
    }
    files
}

/// Returns the paths of the files, each with the location of the entry that names it. Errors in entries are reported again with
/// the other keys.
fn paths_of(
    entries: &Node,
    source: Source<'_>,
    placeholders: &mut Placeholders<'_>,
    problems: &mut Problems,
) -> Vec<(PathBuf, Location)> {
    let mut paths: Vec<(PathBuf, Location)> = Vec::new();
    for entry in entries.items() {
        let read = read_item::<String>(entry, PartKey::Descriptors.name(), &Kind::Text, problems);
        let Some(pattern) = read.get() else { continue };
        let key = (PartKey::Descriptors, pattern.as_str());
        let Ok(found) = expand(key, entry.location, source.texts, placeholders, problems) else {
            placeholders.sources().mark_incomplete();
            continue;
        };
        let new = found.into_iter().filter(|path| paths.iter().all(|(other, _)| other != path));
        let new: Vec<_> = new.map(|path| (path, entry.location)).collect();
        paths.extend(new);
    }
    paths
}
