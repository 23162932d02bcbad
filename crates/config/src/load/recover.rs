//! Loads rules although the files of teams have errors: with the last valid versions of these files.
//!
//! A reload applies everything that it can without changing a rule of a team to anything but a valid version of its file. An
//! error that concerns only the rule file, or that the last valid versions share, rejects everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ConfigLoadError, Loaded};
use crate::Config;
use crate::problem::{Problem, Problems};
use crate::sources::rule_texts::{IncludedText, RuleTexts};
use crate::values::team::TeamVersion;

/// The most changed files of teams that are tried one after the other, if they contradict each other or other files.
const MAX_TRIALS: usize = 20;

/// The errors of teams, by name.
type TeamErrors = BTreeMap<Arc<str>, Vec<Problem>>;

/// Searches for valid rules with versions of team files from `loaded` and `last_valid`.
struct Recovery<'r> {
    current: &'r RuleTexts,
    last_valid: &'r RuleTexts,
    load: &'r dyn Fn(&RuleTexts) -> Result<Config, ConfigLoadError>,
}

/// Replaces the errors of `loaded` by a valid configuration, if only files of teams cause them. `load` loads texts.
pub(super) fn recover(
    mut loaded: Loaded,
    last_valid: &RuleTexts,
    load: &dyn Fn(&RuleTexts) -> Result<Config, ConfigLoadError>,
) -> Loaded {
    let Err(ConfigLoadError::Invalid { problems, .. }) = &loaded.config else { return loaded };
    if loaded.texts.is_incomplete {
        return loaded;
    }
    let recovery = Recovery { current: &loaded.texts, last_valid, load };
    let errors = recovery.errors_of_teams(problems);
    if errors.is_empty() {
        return loaded; // the rule file is the only cause
    }
    if let Some((config, errors)) = recovery.without(errors).or_else(|| recovery.one_by_one()) {
        let texts = recovery.with_versions(|team| !errors.contains_key(team));
        loaded.config = Ok(with_errors(config, errors, &texts));
        loaded.texts = texts;
    }
    loaded
}

// === impl Recovery ===

impl Recovery<'_> {
    /// Returns the errors in the files of teams.
    fn errors_of_teams(&self, problems: &Problems) -> TeamErrors {
        let mut errors = TeamErrors::new();
        // Included files have the numbers from 1.
        for (number, file) in (1..).zip(&self.current.included) {
            let Some(team) = &file.team else { continue };
            let own: Vec<_> = problems.iter().filter(|problem| problem.file_number() == number).cloned().collect();
            if !own.is_empty() {
                errors.insert(Arc::clone(team), own);
            }
        }
        errors
    }

    /// Returns the texts with the current versions of these teams, and the last valid versions of all others.
    fn with_versions(&self, is_current: impl Fn(&str) -> bool) -> RuleTexts {
        let version = |file: &IncludedText| match &file.team {
            Some(team) if !is_current(team) => IncludedText {
                text: self.last_valid.find(&file.path).and_then(|last| last.text.clone()),
                ..file.clone()
            },
            _ => file.clone(),
        };
        let included = self.current.included.iter().map(version).collect();
        RuleTexts { main: Arc::clone(&self.current.main), included, is_incomplete: false }
    }

    /// Loads the last valid versions of the teams with errors.
    fn without(&self, errors: TeamErrors) -> Option<(Config, TeamErrors)> {
        let config = (self.load)(&self.with_versions(|team| !errors.contains_key(team))).ok()?;
        Some((config, errors))
    }

    /// Loads the last valid versions of all teams, and then adds the current versions one after the other. A version that
    /// makes the rules invalid is left out: its errors can be in other files, for example if it covers the routes of another
    /// team.
    fn one_by_one(&self) -> Option<(Config, TeamErrors)> {
        let last_text = |file: &IncludedText| self.last_valid.find(&file.path).and_then(|last| last.text.clone());
        let changed = self.current.included.iter().filter(|file| file.text != last_text(file));
        let mut changed: Vec<_> = changed.filter_map(|file| file.team.clone()).collect();
        if changed.len() > MAX_TRIALS {
            return None;
        }
        let mut config =
            (self.load)(&self.with_versions(|team| changed.iter().all(|changed| **changed != *team))).ok()?;
        let mut errors = TeamErrors::new();
        while !changed.is_empty() {
            let added = changed.remove(0);
            let is_old = |team: &str| changed.iter().any(|other| **other == *team) || errors.contains_key(team);
            match (self.load)(&self.with_versions(|team| !is_old(team))) {
                Ok(valid) => config = valid,
                Err(ConfigLoadError::Invalid { problems, .. }) => {
                    errors.insert(added, problems.iter().cloned().collect());
                }
                Err(ConfigLoadError::Unreadable { .. }) => return None,
            }
        }
        Some((config, errors))
    }
}

/// Records which teams have errors.
fn with_errors(mut config: Config, mut errors: TeamErrors, texts: &RuleTexts) -> Config {
    for team in &mut config.teams {
        let Some(problems) = errors.remove(&team.name) else { continue };
        let is_used = texts.included.iter().any(|file| file.team.as_ref() == Some(&team.name) && file.text.is_some());
        team.version = if is_used { TeamVersion::LastValid } else { TeamVersion::None };
        team.problems = problems;
    }
    config
}
