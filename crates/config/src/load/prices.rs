//! Reads the files of `prices` of limits.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::part_files::{MAX_FILES, PartFiles, PartKey};
use crate::Source;
use crate::check::PriceFiles;
use crate::check::prices::read_prices_file;
use crate::file::include::RouteSources;
use crate::problem::{Location, Problems, quote};
use crate::yaml::Usage;
use crate::yaml::node::{Node, Value};
use crate::yaml::placeholders::Placeholders;

/// The key of the map with the path of a file.
const PERMITS: &str = "permits";

/// The names of files, each with the first location that names it.
type Names = BTreeMap<String, Location>;

/// Reads the files that limits name, each once, and reports their errors.
pub(super) fn read_prices<'p>(
    root: &Node,
    routes: &RouteSources,
    source: Source<'p>,
    usage: &mut Usage,
    placeholders: &mut Placeholders<'p>,
    problems: &mut Problems,
) -> PriceFiles {
    let mut files = PriceFiles::default();
    let mut names = find_names(root, routes);
    reject_names_of_teams(&mut names, routes, &mut files, problems);
    if let Some((_, location)) = names.iter().nth(MAX_FILES) {
        let message = format!("more than {MAX_FILES} {}", PartKey::Prices.files());
        placeholders.sources().record_error(&message);
        problems.add(*location, message, "combine files");
        return files;
    }
    let mut parts = PartFiles::new(PartKey::Prices, source, usage, placeholders, problems);
    for (name, location) in names {
        let path: PathBuf = parts.placeholders.files().part_path(&name);
        let number = parts.problems.add_file(&path);
        let Ok(Some(text)) = parts.read(&path, number, location) else {
            parts.placeholders.sources().mark_incomplete();
            parts.keep(&path, None, None);
            files.insert(&name, Err(parts.problems.reported(location)));
            continue;
        };
        files.insert(&name, read_prices_file(&text, number, parts.usage, parts.placeholders.sources(), parts.problems));
        parts.keep(&path, None, Some(text));
    }
    files
}

/// Returns the names of files in all limits and defaults. If the rule file and a team have a name, its location is in the rule file.
fn find_names(root: &Node, routes: &RouteSources) -> Names {
    let mut names = Names::new();
    let mut add = |name: &str, location: Location| {
        let first = names.entry(name.to_owned()).or_insert(location);
        if routes.team(first.file).is_some() {
            *first = location;
        }
    };
    visit_names(root, &mut add);
    routes.defaults().for_each(|defaults| visit_names(defaults, &mut add));
    names
}

/// Removes and reports names in files of teams: these files must not choose the files that the gateway reads.
fn reject_names_of_teams(names: &mut Names, routes: &RouteSources, files: &mut PriceFiles, problems: &mut Problems) {
    names.retain(|name, location| {
        let is_of_team = routes.team(location.file).is_some();
        if is_of_team {
            let message = format!("the file of a team names {}: `prices` works only in the rule file", quote(name));
            files.insert(name, Err(problems.add(*location, message, "use a shared limit of the rule file")));
        }
        !is_of_team
    });
}

/// Visits the names in a value and below. The depth of a tree is bounded.
fn visit_names(node: &Node, visit: &mut impl FnMut(&str, Location)) {
    match &node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(|item| visit_names(item, visit)),
        Value::Map(entries) => {
            for entry in entries {
                if let Some(prices) = entry.value.get("prices").filter(|_| entry.key == PERMITS)
                    && let Some(name) = prices.scalar().filter(|name| !name.text.is_empty())
                {
                    visit(&name.text, prices.location);
                }
                visit_names(&entry.value, visit);
            }
        }
    }
}
