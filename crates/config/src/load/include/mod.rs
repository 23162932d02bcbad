//! Adds the upstreams and routes of included files to the rule file.
//!
//! The routes of included files follow the routes of the rule file, in the order of `include` and of the file names.

mod entries;
mod merge;

use std::rc::Rc;
use std::sync::Arc;

use self::entries::{Entries, IncludedFile};
use self::merge::{check_default_limits, merge, take_defaults};
use super::part_files::{MAX_FILES, PartFiles, PartKey};
use crate::Source;
use crate::file::defaults::inherit_defaults;
use crate::file::include::{RouteSource, RouteSources};
use crate::problem::{Location, Problems, Reported};
use crate::yaml::node::{Node, Value};
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};

/// Adds included files to the rule file.
struct Includer<'i, 'p>(PartFiles<'i, 'p>);

/// Reads the included files, and adds their upstreams and routes to the tree of the rule file. Returns the defaults
/// and the team of each file.
pub(super) fn include<'p>(
    root: &mut Node,
    source: Source<'p>,
    usage: &mut Usage,
    placeholders: &mut Placeholders<'p>,
    problems: &mut Problems,
) -> RouteSources {
    let mut sources = RouteSources::default();
    let defaults = root.get("defaults").cloned().map(Rc::new);
    sources.set(0, RouteSource { defaults: defaults.clone(), team: None });
    let entries = Entries::read(root, problems);
    let Ok(files) = entries.files(source.texts, placeholders, problems) else { return sources };
    if let Some(file) = files.get(MAX_FILES) {
        let message = format!("more than {MAX_FILES} included files");
        placeholders.sources().record_error(&message);
        problems.add(file.location, message, "combine files");
        return sources;
    }
    let mut includer = Includer(PartFiles::new(PartKey::Include, source, usage, placeholders, problems));
    for file in files {
        includer.add(file, root, defaults.as_ref(), &mut sources);
    }
    check_default_limits(root, &sources, problems);
    sources
}

/// Returns `true` if a file of `include` belongs to a team.
pub(super) fn has_teams(root: &Node) -> bool {
    root.get("include").is_some_and(|include| include.items().iter().any(|entry| matches!(entry.value, Value::Map(_))))
}

// === impl Includer ===

impl Includer<'_, '_> {
    /// Adds a file, and reports its errors.
    fn add(&mut self, file: IncludedFile, root: &mut Node, defaults: Option<&Rc<Node>>, sources: &mut RouteSources) {
        let IncludedFile { path, location, team, defaults: own } = file;
        let team = team.map(Arc::new);
        sources.teams.extend(team.clone());
        let number = self.0.problems.add_file(&path);
        // The fault of a team's file must not look like a fault of the rule file.
        let location = if team.is_some() { Location::start_of(number) } else { location };
        let text = match self.0.read(&path, number, location) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(Reported { .. }) => {
                if team.is_none() {
                    self.0.placeholders.sources().mark_incomplete();
                }
                return self.0.keep(&path, team.as_deref(), None);
            }
        };
        let read = yaml::read(&text, number, self.0.usage, self.0.placeholders, self.0.problems);
        self.0.keep(&path, team.as_deref(), Some(text));
        let Ok(mut included) = read else { return };
        let defaults = layered(defaults, own, take_defaults(&mut included, self.0.problems));
        sources.set(number, RouteSource { defaults, team: team.clone() });
        merge(root, included, team.as_deref(), self.0.problems);
    }
}

/// Returns the defaults of a file: of the rule file, of its entry in `include`, and its own. Later ones take precedence.
fn layered(outer: Option<&Rc<Node>>, of_entry: Option<Node>, own: Option<Node>) -> Option<Rc<Node>> {
    let mut innermost: Option<Node> = None;
    for defaults in [own, of_entry].into_iter().flatten() {
        match &mut innermost {
            None => innermost = Some(defaults),
            Some(inner) => inherit_defaults(&defaults, inner),
        }
    }
    match (innermost, outer) {
        (Some(mut inner), Some(outer)) => {
            inherit_defaults(outer, &mut inner);
            Some(Rc::new(inner))
        }
        (inner, outer) => inner.map(Rc::new).or_else(|| outer.cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;
    use crate::problem::Problem;
    use crate::sources::SourceFiles;
    use crate::sources::referenced_files::ReferencedFiles;

    /// Returns the errors of a rule file that includes other files.
    fn errors(main: &str, included: &[&str]) -> Vec<String> {
        let (mut sources, mut problems, mut usage) = (SourceFiles::default(), Problems::default(), Usage::default());
        let mut placeholders = Placeholders::new(ReferencedFiles::in_current_folder(), &mut sources);
        let mut read = |text, problems: &mut Problems| yaml::read(text, 0, &mut usage, &mut placeholders, problems);
        let mut root = read(main, &mut problems).unwrap();
        for text in included {
            let included = read(text, &mut problems).unwrap();
            merge(&mut root, included, None, &mut problems);
        }
        _ = File::from_root(&root, &mut problems);
        problems.iter().map(Problem::message).map(str::to_owned).collect()
    }

    #[test]
    fn values_of_a_wrong_kind_are_reported_where_they_are() {
        let route = "routes: [{ name: a, match: {} }]";
        for (main, included, message) in [
            ("routes:", &[route][..], "`routes` has no value"),
            ("include: a", &["routes: {}", route], "`routes` must be a list, not a map"),
            (route, &["upstreams: []", "upstreams: {}"], "`upstreams` must be a map, not a list"),
            (route, &["routes: 5"], "`routes` must be a list, not `5`"),
        ] {
            assert_eq!(errors(main, included), [message], "{main}");
        }
    }
}
