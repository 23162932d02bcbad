//! The entries of `include`, and the files and teams that they name.

use std::path::{Path, PathBuf};

use crate::check::all;
use crate::check::matching::matcher::host;
use crate::check::names::duplicates;
use crate::file;
use crate::file::include::INCLUDE_KIND;
use crate::file::located::Located;
use crate::file::read::{is_name, read_item};
use crate::load::part_files::PartKey;
use crate::load::paths::expand;
use crate::problem::{Checked, Location, Problems, quote};
use crate::sources::rule_texts::RuleTexts;
use crate::values::team::{Team, TeamVersion};
use crate::yaml::node::{Node, Value};
use crate::yaml::placeholders::Placeholders;
use tidegate_rules::route::HostPattern;

/// The entries of `include` without errors.
pub(super) struct Entries(Vec<IncludeEntry>);

struct IncludeEntry {
    keys: file::Include,
    location: Location,
    /// Whether the entry is a map, which names the file of a team.
    is_team: bool,
    hosts: Vec<HostPattern>,
    defaults: Option<Node>,
}

/// A file to include.
pub(super) struct IncludedFile {
    pub(super) path: PathBuf,
    /// The location of its entry.
    pub(super) location: Location,
    pub(super) team: Option<Team>,
    /// The `defaults` of its entry.
    pub(super) defaults: Option<Node>,
}

// === impl Entries ===

impl Entries {
    /// Reads the entries. Errors in their keys are reported again with the other keys.
    pub(super) fn read(root: &Node, problems: &mut Problems) -> Self {
        let nodes = root.get("include").map(Node::items).unwrap_or_default();
        let is_unknown = |node: &Node| node.is_invalid() || node.get("path").is_some_and(Node::is_invalid);
        if problems.unknown_values() > 0 && nodes.iter().any(is_unknown) {
            problems.note_unknown_file(root.location);
        }
        let entries = nodes.iter().filter_map(|node| {
            let read: Located<file::Include> = read_item(node, "include", &INCLUDE_KIND, problems);
            let keys = read.into_value()?;
            let hosts = all(keys.hosts.items().iter().map(|entry| host(entry, problems))).ok()?;
            let is_team = matches!(node.value, Value::Map(_));
            let defaults = node.get("defaults").filter(|_| keys.defaults.is_present()).cloned();
            Some(IncludeEntry { keys, location: node.location, is_team, hosts, defaults })
        });
        let entries: Vec<_> = entries.collect();
        check_hosts(&entries, problems);
        Self(entries)
    }

    /// Returns the files of all entries, each once. `texts` has all files if they are not read from the file system.
    ///
    /// # Errors
    /// The name of a team has an error.
    pub(super) fn files(
        &self,
        texts: Option<&RuleTexts>,
        placeholders: &mut Placeholders<'_>,
        problems: &mut Problems,
    ) -> Checked<Vec<IncludedFile>> {
        let mut files: Vec<IncludedFile> = Vec::new();
        for entry in &self.0 {
            let Some(pattern) = entry.keys.path.get() else { continue };
            let location = if entry.is_team { entry.keys.path.location } else { entry.location };
            let Ok(paths) = expand((PartKey::Include, pattern), location, texts, placeholders, problems) else {
                placeholders.sources().mark_incomplete();
                continue;
            };
            for path in paths {
                if files.iter().any(|existing| existing.path == path) {
                    continue;
                }
                let team = if entry.is_team { Some(entry.team(&path, problems)?) } else { None };
                files.push(IncludedFile { path, location, team, defaults: entry.defaults.clone() });
            }
        }
        let teams = files.iter().filter_map(|file| Some((&*file.team.as_ref()?.name, file.location)));
        duplicates(teams, "team", problems);
        Ok(files)
    }
}

impl IncludeEntry {
    /// Returns the team of a file.
    fn team(&self, path: &Path, problems: &mut Problems) -> Checked<Team> {
        let keys = &self.keys;
        let (name, location) = match keys.name.optional(problems)? {
            Some(_) if keys.path.get().is_some_and(|path| path.contains('*')) => {
                let message = "`name` names one team, but a path with `*` has a team for each file";
                return Err(keys.name.report(
                    message,
                    "leave it out: the name of a file is the name of its team",
                    problems,
                ));
            }
            Some(name) => (name.clone(), keys.name.location),
            None => (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), keys.path.location),
        };
        if name.contains('.') || !is_name(&name) {
            let message = format!("{} is not the name of a team", quote(&name));
            let help = "set `name` to 1 to 64 letters, digits, `_` or `-`, or rename the file";
            return Err(problems.add(location, message, help));
        }
        Ok(Team {
            name: name.into(),
            file: path.to_string_lossy().into(),
            hosts: self.hosts.clone(),
            upstreams: keys.upstreams.or_default(problems)?,
            require_limits: keys.require_limits.or_default(problems)?,
            version: TeamVersion::Current,
            problems: Vec::new(),
        })
    }
}

/// Reports hosts of a team that an earlier team has as well: its routes would match first.
fn check_hosts(entries: &[IncludeEntry], problems: &mut Problems) {
    for (index, entry) in entries.iter().enumerate() {
        for (host, raw) in entry.hosts.iter().zip(entry.keys.hosts.items()) {
            let owns = |earlier: &&IncludeEntry| earlier.hosts.iter().any(|other| other.covers(host));
            if let Some(earlier) = entries[..index].iter().find(owns) {
                let place = problems.place(earlier.keys.hosts.location, raw.location);
                let message = format!("the host {} already belongs to the entry {place}", quote(&host.to_string()));
                let help = "give each host to one entry, and list `*.example.com` after the hosts below it";
                problems.add(raw.location, message, help);
            }
        }
    }
}
