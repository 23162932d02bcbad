//! Adds the upstreams and routes of included files to the rule file.
//!
//! The routes of included files follow the routes of the rule file, in the order of `include` and of the file names.

mod entries;
mod merge;
mod paths;

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use self::entries::{Entries, IncludedFile};
use self::merge::{check_default_limits, merge, take_defaults};
use crate::file::defaults::inherit_defaults;
use crate::file::include::{RouteSource, RouteSources};
use crate::problem::{Checked, Location, Problems, Reported, quote};
use crate::sources::rule_texts::IncludedText;
use crate::sources::text::{MAX_READ, decode};
use crate::yaml::node::{Node, Value};
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};
use crate::{Source, Team};
use tidegate_rules::settings::files::FileReadError;

/// The most bytes of all included files together.
const MAX_TOTAL: usize = 16 << 20;

/// The most included files.
const MAX_FILES: usize = 1000;

/// Reads included files.
struct Includer<'i, 'p> {
    source: Source<'p>,
    usage: &'i mut Usage,
    placeholders: &'i mut Placeholders<'p>,
    problems: &'i mut Problems,
    /// The bytes that included files may still have.
    remaining: usize,
}

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
    let mut includer = Includer { source, usage, placeholders, problems, remaining: MAX_TOTAL };
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
        let number = self.problems.add_file(&path);
        // The fault of a team's file must not look like a fault of the rule file.
        let location = if team.is_some() { Location::start_of(number) } else { location };
        let text = match self.read(&path, number, location).and_then(|text| self.bound(text, location)) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(Reported { .. }) => {
                if team.is_none() {
                    self.placeholders.sources().mark_incomplete();
                }
                return self.keep(&path, team.as_deref(), None);
            }
        };
        let read = yaml::read(&text, number, self.usage, self.placeholders, self.problems);
        self.keep(&path, team.as_deref(), Some(text));
        let Ok(mut included) = read else { return };
        let defaults = layered(defaults, own, take_defaults(&mut included, self.problems));
        sources.set(number, RouteSource { defaults, team: team.clone() });
        merge(root, included, team.as_deref(), self.problems);
    }

    /// Reports a file with which all included files are too large.
    fn bound(&mut self, text: Option<String>, location: Location) -> Checked<Option<String>> {
        let length = text.as_ref().map_or(0, String::len);
        let rest = self.remaining.checked_sub(length).ok_or_else(|| {
            let message = format!("the included files are together larger than {MAX_TOTAL} bytes (16 MiB)");
            self.problems.add(location, message, "combine routes with `{segment}`, `/**` and `*.host`")
        });
        self.remaining = rest?;
        Ok(text)
    }

    /// Returns the text of a file. Returns `None` if its routes are left out.
    fn read(&mut self, path: &Path, number: u16, location: Location) -> Checked<Option<String>> {
        if let Some(texts) = self.source.texts {
            return match texts.find(self.source.files.relative(path)) {
                Some(file) => Ok(file.text.as_deref().map(str::to_owned)),
                None => {
                    let message = format!("{} is not among the saved files", quote(&path.display().to_string()));
                    Err(self.problems.add(location, message, "correct the rule file"))
                }
            };
        }
        if self.is_main(path) {
            let help = "move the included files to their own folder, as in `include: conf.d/*.yaml`";
            let message = "the rule file includes itself";
            self.placeholders.sources().record(path);
            self.placeholders.sources().record_error(&message);
            return Err(self.problems.add(location, message, help));
        }
        let name = self.source.files.relative(path);
        let bytes = self.placeholders.sources().read_included(path, name, MAX_READ).map_err(|error| {
            let help = match error {
                FileReadError::NotAFile => "name a regular file of at most 1 MiB",
                _ => "a relative path starts at the folder of the rule file",
            };
            self.problems.add(location, format!("{} {error}", quote(&path.display().to_string())), help)
        })?;
        decode(bytes, number, self.problems).map(Some)
    }

    fn is_main(&self, path: &Path) -> bool {
        let main = fs::canonicalize(self.source.name).ok();
        main.is_some() && fs::canonicalize(path).ok() == main
    }

    /// Keeps the text of a file.
    fn keep(&mut self, path: &Path, team: Option<&Team>, text: Option<String>) {
        if self.source.keeps_texts {
            let path = self.source.files.relative(path).to_owned();
            let (team, text) = (team.map(|team| Arc::clone(&team.name)), text.map(Into::into));
            self.placeholders.sources().keep_included(IncludedText { path, team, text });
        }
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
