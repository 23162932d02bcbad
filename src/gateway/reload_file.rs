//! Reloads the rule file of a gateway: when the file changes, on a signal, and on request of an operator.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use blake3::Hash;
use parking_lot::Mutex;
use serde_json::json;

use super::files::GATEWAY_FILES;
use super::saved_rules::SavedRules;
use super::store_probe::UnreachableStore;
use super::{ReloadError, ReloadReport, Reloader};
use crate::admin::{Admin, ConfigProblem, ReloadFailure, ReloadHook};
use tidegate_config::{ConfigLoadError, Loaded, Problem, RuleFile, RuleTexts, SourceFiles, Team};
use tidegate_metrics::{Metrics, ReloadOutcome};
use tidegate_rules::watch::StableFiles;

/// Reloads the rule file. Clones reload the same gateway.
#[derive(Clone, Debug)]
pub(crate) struct FileReloader(Arc<ReloadContext>);

#[derive(Debug)]
struct ReloadContext {
    file: RuleFile,
    reloader: Reloader,
    admin: Admin,
    metrics: Arc<Metrics>,
    /// Held during a reload, so that reloads do not overlap.
    last_read: Mutex<LastRead>,
    /// The files that were read last.
    sources: Mutex<Arc<[PathBuf]>>,
    /// The file that stores the rules in use.
    saved: Option<SavedRules>,
}

/// The rule file of a start.
#[derive(Debug)]
pub(crate) struct StartRules {
    /// The files that were read.
    pub(crate) sources: SourceFiles,
    /// The texts of the rules in use.
    pub(crate) texts: RuleTexts,
    /// Why the rule file is not in use, but the saved rules are, or no rules.
    pub(crate) rejected: Option<ConfigLoadError>,
    /// The file that stores the rules in use.
    pub(crate) saved: Option<SavedRules>,
}

/// The texts that were read last.
#[derive(Debug)]
struct LastRead {
    /// Their hash. `None` if the file could not be read.
    hash: Option<Hash>,
    /// The hash by which the watcher of the files recognizes them. `None` if it is not known.
    watched: Option<Hash>,
    /// The texts of the rules in use, which may be older.
    in_use: RuleTexts,
}

/// A reload that was applied.
#[derive(Debug)]
struct Applied {
    report: ReloadReport,
    /// The hash of the rules in use.
    hash: Hash,
}

/// A failed reload. The previous rules stay in use.
#[derive(Debug)]
pub(crate) struct FailedReload {
    /// Whether the gateway drains, which is no error.
    is_draining: bool,
    /// The errors for operators.
    problems: Vec<ConfigProblem>,
}

/// Why the rule file is reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadTrigger {
    /// The file changed.
    FileChange,
    /// SIGHUP.
    Signal,
    /// An operator requested it.
    Operator,
    /// An operator requested it, even if a changed store does not reply.
    ForcedByOperator,
}

/// Reloads the rule file when it changes.
#[derive(Debug)]
pub(super) struct RuleFileWatcher {
    /// The hash of the texts decides whether they are complete.
    files: StableFiles<Hash>,
    reloader: FileReloader,
}

/// The most changes that are logged one by one.
pub(super) const MAX_LOGGED: usize = 100;

// === impl FileReloader ===

impl FileReloader {
    /// Creates a reloader of `file`. The gateway runs with the texts of `start`, and with these teams.
    pub(super) fn new(
        file: RuleFile,
        start: StartRules,
        teams: &[Team],
        reloader: Reloader,
        admin: Admin,
        metrics: Arc<Metrics>,
    ) -> Self {
        let StartRules { sources: loaded, texts: in_use, rejected, saved } = start;
        let (hash, watched) = (loaded.hash(), loaded.watched_hash());
        let in_use_hash = if rejected.is_some() { Some(in_use.hash()) } else { hash_in_use(hash, &in_use, teams) };
        let last_read = Mutex::new(LastRead { hash, watched, in_use });
        let sources = Mutex::new(loaded.into_paths().into());
        let reloader = Self(Arc::new(ReloadContext { file, reloader, admin, metrics, last_read, sources, saved }));
        reloader.record_start(in_use_hash, teams, rejected);
        reloader
    }

    /// Records the rules of the start. Reports why they are not the rules of the file, if they are not.
    fn record_start(&self, hash: Option<Hash>, teams: &[Team], rejected: Option<ConfigLoadError>) {
        let ReloadContext { file, admin, metrics, last_read, saved, .. } = &*self.0;
        let errors = self.log_teams(teams);
        hash.inspect(|hash| _ = admin.record_config(hash, false, errors));
        match (rejected, saved) {
            (Some(error), saved) => {
                let problems = problems(file, &error.into());
                metrics.reloaded(ReloadOutcome::Failed);
                match saved {
                    Some(saved) => {
                        tracing::error!(%file, saved = %saved.path().display(), errors = problems.len(), "rule file is invalid, the saved rules are in use");
                    }
                    None => tracing::error!(%file, errors = problems.len(), "rules are invalid, none are in use"),
                }
                log_problems(&problems);
                admin.record_config_errors(problems);
            }
            (None, Some(saved)) => saved.write(&last_read.lock().in_use),
            (None, None) => {}
        }
    }

    /// Logs the errors in files of teams. Returns the errors.
    fn log_teams(&self, teams: &[Team]) -> Vec<ConfigProblem> {
        let (file, mut errors) = (self.0.file.to_string(), Vec::new());
        for team in teams.iter().filter(|team| team.is_invalid()) {
            let name = Some(team.name.to_string());
            let problem = |problem| ConfigProblem { team: name.clone(), ..config_problem(problem, &file) };
            let problems: Vec<_> = team.problems.iter().map(problem).collect();
            let version = team.version.name();
            tracing::error!(team = %team.name, file = %team.file, version, errors = problems.len(), "file of a team is invalid, all other changes apply");
            log_problems(&problems);
            errors.extend(problems);
        }
        errors
    }

    /// Returns the reload for the admin listener.
    pub(super) fn hook(&self) -> ReloadHook {
        let reloader = Arc::downgrade(&self.0);
        Box::new(move |is_forced, is_expected| {
            let Some(reloader) = reloader.upgrade().map(Self) else {
                return Err(ReloadFailure::Invalid(Vec::new())); // the gateway has ended
            };
            let trigger = if is_forced { ReloadTrigger::ForcedByOperator } else { ReloadTrigger::Operator };
            let report = reloader.reload_if(trigger, None, is_expected).ok_or(ReloadFailure::Precondition)?;
            let report = report.map_err(|failed| ReloadFailure::Invalid(failed.problems))?;
            Ok(json!({
                "changes": report.changes(),
                "diff": report.diff,
                "needs_restart": report.needs_restart,
                "errors": report.team_errors,
            }))
        })
    }

    /// Creates a watcher of the files that were read last.
    pub(super) fn watcher(&self) -> RuleFileWatcher {
        RuleFileWatcher { files: StableFiles::new(self.sources().to_vec()), reloader: self.clone() }
    }

    fn is_stdin(&self) -> bool {
        matches!(self.0.file, RuleFile::Stdin)
    }

    /// Returns the files that were read last.
    fn sources(&self) -> Arc<[PathBuf]> {
        Arc::clone(&self.0.sources.lock())
    }

    /// Reads the file and applies it. Blocks until all workers use the new rules. Logs the result.
    ///
    /// # Errors
    /// The file cannot be read or applied. The previous rules stay in use.
    pub(crate) fn reload(&self, trigger: ReloadTrigger) -> Result<ReloadReport, FailedReload> {
        // The condition always holds.
        self.reload_if(trigger, None, &|| true).unwrap_or_else(|| Ok(ReloadReport::default()))
    }

    /// Like [`reload`](Self::reload), if `is_expected` returns `true`, and if the watched texts are not those that were
    /// read last. No other reload runs in the meantime. Returns `None` without a reload.
    fn reload_if(
        &self,
        trigger: ReloadTrigger,
        watched: Option<Hash>,
        is_expected: &dyn Fn() -> bool,
    ) -> Option<Result<ReloadReport, FailedReload>> {
        let mut last_read = self.0.last_read.lock();
        if !is_expected() || (watched.is_some() && last_read.watched == watched) {
            return None;
        }
        let result = self.read_and_apply(trigger, watched, &mut last_read);
        match &result {
            // The files have the texts that were read before.
            Ok(None) => {}
            Ok(Some(applied)) => self.record_success(trigger, applied),
            Err(failed) if failed.is_draining => {}
            Err(failed) => self.record_failure(trigger, &failed.problems),
        }
        Some(result.map(|applied| applied.map_or_else(ReloadReport::default, |applied| applied.report)))
    }

    /// Returns `None` if a file has changed, but no text has.
    fn read_and_apply(
        &self,
        trigger: ReloadTrigger,
        watched: Option<Hash>,
        last_read: &mut LastRead,
    ) -> Result<Option<Applied>, FailedReload> {
        let ReloadContext { file, reloader, saved, .. } = &*self.0;
        if self.is_stdin() {
            return Err(FailedReload::new(file, &ReloadError::NoFile));
        }
        let Loaded { config, sources, texts } = file.reload(GATEWAY_FILES, last_read.in_use.clone(), saved.is_some());
        let hash = sources.hash();
        last_read.watched = sources.watched_hash().or(watched);
        let has_same_texts = hash.is_some() && hash == last_read.hash;
        last_read.hash = hash;
        *self.0.sources.lock() = sources.into_paths().into();
        if trigger == ReloadTrigger::FileChange && has_same_texts {
            return Ok(None);
        }
        // The errors of a rule file have no secrets.
        let config = config.map_err(|error| FailedReload::new(file, &error.into()))?;
        for warning in &config.warnings {
            tracing::warn!("{}", warning.in_file(file));
        }
        let (secrets, teams) = (config.secrets.clone(), config.teams.clone());
        let unreachable = match trigger {
            ReloadTrigger::ForcedByOperator => UnreachableStore::Accept,
            ReloadTrigger::FileChange | ReloadTrigger::Signal | ReloadTrigger::Operator => UnreachableStore::Reject,
        };
        match reloader.reload(config, unreachable) {
            Ok(report) => {
                saved.iter().for_each(|saved| saved.write(&texts));
                let applied = hash_in_use(hash, &texts, &teams).map(|hash| Applied {
                    report: ReloadReport { team_errors: self.log_teams(&teams), ..report },
                    hash,
                });
                last_read.in_use = texts;
                Ok(applied)
            }
            Err(error) => Err(FailedReload::new(file, &error).masked(|message| secrets.mask(message).into_owned())),
        }
    }

    fn record_success(&self, trigger: ReloadTrigger, Applied { report, hash }: &Applied) {
        let ReloadContext { file, admin, metrics, .. } = &*self.0;
        let outcome = if report.diff.is_empty() { ReloadOutcome::Unchanged } else { ReloadOutcome::Applied };
        metrics.reloaded(outcome);
        if admin.record_config(hash, outcome == ReloadOutcome::Applied, report.team_errors.clone()) {
            tracing::info!(%file, "rule file is valid again");
        }
        let changes = report.changes();
        match outcome {
            ReloadOutcome::Applied => {
                tracing::info!(%file, trigger = trigger.name(), %hash, changes = changes.len(), "rules reloaded");
                changes.iter().take(MAX_LOGGED).for_each(|change| tracing::info!("reload: {change}"));
            }
            _ => tracing::info!(%file, trigger = trigger.name(), "rules are unchanged"),
        }
        for key in report.needs_restart() {
            tracing::warn!(key, "a changed setting is not reloaded: restart the gateway to apply it");
        }
    }

    fn record_failure(&self, trigger: ReloadTrigger, problems: &[ConfigProblem]) {
        let ReloadContext { file, admin, metrics, .. } = &*self.0;
        metrics.reloaded(ReloadOutcome::Failed);
        tracing::error!(%file, trigger = trigger.name(), errors = problems.len(), "rules not reloaded, the previous ones stay in use");
        log_problems(problems);
        admin.record_config_errors(problems.to_vec());
    }
}

// === impl FailedReload ===

impl FailedReload {
    fn new(file: &RuleFile, error: &ReloadError) -> Self {
        Self { is_draining: matches!(error, ReloadError::Draining), problems: problems(file, error) }
    }

    /// Masks the messages.
    fn masked(mut self, mask: impl Fn(&str) -> String) -> Self {
        self.problems.iter_mut().for_each(|problem| problem.message = mask(&problem.message));
        self
    }
}

fn log_problems(problems: &[ConfigProblem]) {
    for ConfigProblem { file, line, column, message, help, team } in problems {
        tracing::error!(team, file, line, column, help, "reload: {message}");
    }
}

/// Returns the hash of the rules in use: of all texts that were read, unless files of teams are not in use.
fn hash_in_use(read: Option<Hash>, texts: &RuleTexts, teams: &[Team]) -> Option<Hash> {
    if teams.iter().any(Team::is_invalid) { Some(texts.hash()) } else { read }
}

/// Returns an error for operators. `main` is the rule file.
fn config_problem(problem: &Problem, main: &str) -> ConfigProblem {
    ConfigProblem {
        file: problem.file().unwrap_or(main).to_owned(),
        line: problem.line(),
        column: problem.column(),
        message: problem.message().to_owned(),
        help: Some(problem.help().to_owned()),
        team: None,
    }
}

/// Returns the errors for operators.
fn problems(file: &RuleFile, error: &ReloadError) -> Vec<ConfigProblem> {
    let file = file.to_string();
    match error {
        ReloadError::File(ConfigLoadError::Invalid { problems, .. }) | ReloadError::ControlPlane(problems) => {
            problems.iter().map(|problem| config_problem(problem, &file)).collect()
        }
        ReloadError::File(ConfigLoadError::Unreadable { source, .. }) => {
            vec![ConfigProblem::of_file(file, format!("cannot be read: {source}"))]
        }
        error @ ReloadError::StoreUnreachable(_) => {
            let help = "correct `store`, or start Redis; `tidegate reload --force` uses the store nevertheless";
            vec![ConfigProblem { help: Some(help.to_owned()), ..ConfigProblem::of_file(file, error.to_string()) }]
        }
        error => vec![ConfigProblem::of_file(file, error.to_string())],
    }
}

// === impl RuleFileWatcher ===

impl RuleFileWatcher {
    /// Polls the files, and reloads them if one has changed. Returns `Break` if the gateway drains.
    pub(super) fn poll(&mut self) -> ControlFlow<()> {
        let paths = self.reloader.sources();
        self.files.set_paths(&paths);
        let Some(watched) = self.files.poll(|| SourceFiles::hash_texts(&paths)) else {
            return ControlFlow::Continue(());
        };
        match self.reloader.reload_if(ReloadTrigger::FileChange, Some(watched), &|| true) {
            Some(Err(failed)) if failed.is_draining => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl ReloadTrigger {
    /// Returns the word for logs.
    fn name(self) -> &'static str {
        match self {
            Self::FileChange => "file change",
            Self::Signal => "SIGHUP",
            Self::Operator => "request",
            Self::ForcedByOperator => "forced request",
        }
    }
}
