//! The state of a running gateway that a reload replaces.
//!
//! A reload first builds the complete new state: upstreams, listeners and the store. An error changes nothing. Then it
//! replaces the rules of all workers in one step. Requests in flight finish with the rules, upstreams and store with
//! which they started.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;

use tokio::sync::watch;

use super::control::ControlTasks;
use super::error::{GatewayStartError, ReloadError};
use super::listeners::Listeners;
use super::sent_domains::SentDomains;
use super::state_file::StateFile;
use super::store_probe::{self, UnreachableStore};
use super::upstreams::WorkerUpstreams;
use super::worker::{WorkerCommand, WorkerHandle};
use crate::admin::{Admin, ConfigProblem};
use crate::credentials::Verifiers;
use tidegate_config::diff::ConfigDiff;
use tidegate_config::{AccessLog, Config};
use tidegate_layer::layer::{RateLimitLayer, Stores};
use tidegate_metrics::Metrics;
use tidegate_proxy::forward::find_in;
use tidegate_proxy::upstream::Upstreams;
use tidegate_rules::rules::Verifier;
use tidegate_store::Store;

/// The state of a running gateway.
pub(super) struct Running {
    pub(super) config: Arc<Config>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) layer: RateLimitLayer,
    pub(super) admin: Admin,
    pub(super) stores: Stores,
    pub(super) upstreams: WorkerUpstreams,
    /// The upstreams whose targets are checked.
    pub(super) checked: watch::Sender<Upstreams>,
    pub(super) listeners: Listeners,
    pub(super) workers: Vec<WorkerHandle>,
    pub(super) control: ControlTasks,
    pub(super) state_file: Option<StateFile>,
    pub(super) access_log: Option<AccessLogSwitch>,
    pub(super) sent_domains: SentDomains,
}

/// Opens the access log with other settings. The returned function switches to them.
pub(crate) type AccessLogSwitch =
    Box<dyn Fn(&AccessLog) -> Result<AccessLogChange, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// Switches to other settings of the access log.
pub(crate) type AccessLogChange = Box<dyn FnOnce() + Send>;

/// The effect of a reload.
#[derive(Clone, Debug, Default)]
pub struct ReloadReport {
    /// The changes that were applied.
    pub(crate) diff: ConfigDiff,
    /// The changed keys of the rule file that only a restart applies.
    pub(crate) needs_restart: Vec<&'static str>,
    /// The errors in files of teams, which are not in use.
    pub(crate) team_errors: Vec<ConfigProblem>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("config", &self.config).finish_non_exhaustive()
    }
}

// === impl ReloadReport ===

impl ReloadReport {
    /// Returns `true` if the configuration is the same as before.
    pub fn is_unchanged(&self) -> bool {
        self.diff.is_empty() && self.needs_restart.is_empty()
    }

    /// Returns a line for each change that was applied.
    pub fn changes(&self) -> Vec<String> {
        self.diff.lines()
    }

    /// Returns the changed keys of the rule file that only a restart applies.
    pub fn needs_restart(&self) -> &[&'static str] {
        &self.needs_restart
    }
}

// === impl Running ===

impl Running {
    /// Replaces the configuration, except for the domains that a control plane has sent.
    ///
    /// # Errors
    /// These domains do not fit the new configuration, or something that it needs cannot be opened. Nothing has changed then.
    pub(super) fn reload(
        &mut self,
        config: Config,
        unreachable: UnreachableStore,
    ) -> Result<ReloadReport, ReloadError> {
        let config = self.sent_domains.add_to(config)?;
        let report = self.replace(config, unreachable)?;
        self.sent_domains.follow(&self.config, &self.metrics);
        Ok(report)
    }

    /// Replaces the configuration.
    ///
    /// # Errors
    /// Something that the new configuration needs cannot be opened. Nothing has changed then.
    pub(super) fn replace(
        &mut self,
        mut config: Config,
        unreachable: UnreachableStore,
    ) -> Result<ReloadReport, ReloadError> {
        let needs_restart = self.keep_fixed_settings(&mut config);
        let verifiers_before = Verifiers::of(&self.config.verifier);
        let verifiers = Verifiers::of(&config.verifier).or_kept(&verifiers_before);
        config.verifier = Verifier::new(verifiers.clone());
        let diff = ConfigDiff::new(&self.config, &config);
        // Equal rules can be at other lines of the file, which operators see.
        if diff.is_empty()
            && self.config.warnings == config.warnings
            && self.config.rules == config.rules
            && self.config.service == config.service
            && self.config.secrets == config.secrets
            && self.config.teams == config.teams
        {
            return Ok(ReloadReport { diff, needs_restart, team_errors: Vec::new() });
        }
        let config = Arc::new(config);
        let workers = self.workers.len();
        if unreachable == UnreachableStore::Reject && self.config.store.moves_to(&config.store) {
            self.probe_store(&config)?;
        }
        let new_stores = self.open_stores(&config)?;
        let plan = self.listeners.plan(&config, workers)?;
        let served = plan.distribute(workers)?;
        let access_log = self.open_access_log(&config)?;

        // From here on, nothing can fail.
        self.upstreams.resolver().set_servers(&config.dns_servers); // before new names are resolved
        let upstreams = self.upstreams.replaced(&self.config.upstreams, &config.upstreams, &self.metrics);
        upstreams.resolver().wait_for_names();
        let has_new_stores = new_stores.is_some();
        if let Some(stores) = new_stores {
            self.connect(&stores);
            self.stores = stores;
        }
        let hosts = self.upstreams.resolver().hosts();
        self.control.serve_identities(&verifiers, &verifiers_before, &hosts, &self.metrics);
        let services = upstreams.services();
        self.layer.replace_all(&config, self.stores.clone(), &find_in(upstreams.per_worker()), services);
        access_log.into_iter().for_each(|switch| switch());
        self.admin.replace(Arc::clone(&config), self.stores.main().clone(), upstreams.shared());
        self.checked.send_replace(upstreams.checked());
        self.metrics.set_team_files(config.teams.iter().map(|team| (&*team.name, !team.is_invalid())));
        let terminations = self.listeners.terminations();
        let retired = self.listeners.apply(plan, &config);
        let commands: Vec<_> = self.workers.iter().zip(served).filter(|(_, served)| !served.is_empty()).collect();
        run_commands(commands.into_iter().map(|(worker, served)| (worker, WorkerCommand::Serve(served))));
        self.listeners.retire(retired);
        let mut watchers = self.listeners.watchers(&terminations, &self.metrics);
        watchers.extend(upstreams.watchers_since(&self.upstreams, &self.metrics));
        self.control.watch(watchers);
        (self.upstreams, self.config) = (upstreams, config);
        if has_new_stores {
            self.follow_gateways();
        }
        Ok(ReloadReport { diff, needs_restart, team_errors: Vec::new() })
    }

    /// Keeps the settings that only a restart applies. Returns their keys, if they changed.
    fn keep_fixed_settings(&self, new: &mut Config) -> Vec<&'static str> {
        let (old, mut keys) = (&self.config, Vec::new());
        if old.admin != new.admin {
            new.admin.clone_from(&old.admin);
            keys.push("admin");
        }
        if old.buckets != new.buckets {
            new.buckets.clone_from(&old.buckets);
            keys.push("metrics");
        }
        // The log is off without a cost for requests, so it cannot be turned on or off later.
        let is_off = old.access_log.is_off() || new.access_log.is_off();
        if old.access_log != new.access_log && (self.access_log.is_none() || is_off) {
            new.access_log.clone_from(&old.access_log);
            keys.push("access_log");
        }
        keys
    }

    /// Opens the access log if its settings changed.
    fn open_access_log(&self, config: &Config) -> Result<Option<AccessLogChange>, ReloadError> {
        match &self.access_log {
            Some(open) if self.config.access_log != config.access_log => {
                open(&config.access_log).map(Some).map_err(ReloadError::AccessLog)
            }
            _ => Ok(None),
        }
    }

    /// Blocks until the new store replies.
    fn probe_store(&self, config: &Arc<Config>) -> Result<(), ReloadError> {
        let (config, (result, replied)) = (Arc::clone(config), channel());
        self.control.spawn(async move { _ = result.send(store_probe::probe(&config.store).await) });
        // An error means that the gateway has ended.
        replied.recv().unwrap_or(Ok(()))
    }

    /// Opens the store if its settings changed.
    fn open_stores(&self, config: &Config) -> Result<Option<Stores>, GatewayStartError> {
        if self.config.store == config.store {
            return Ok(None);
        }
        let store = Store::open(&config.store, Arc::clone(&self.metrics))?;
        store.announce_as_gateway();
        store.assume_gateways(self.stores.main().gateways());
        if let Some(owed) = self.stores.main().owed_permits().filter(|owed| *owed > 0) {
            tracing::warn!(owed, "the store is replaced before it was charged for permits that were granted locally");
        }
        Ok(Some(Stores::new(store, self.workers.len())))
    }

    /// Opens the connections of all threads to a new store.
    fn connect(&self, stores: &Stores) {
        let main = stores.main().clone();
        self.control.spawn(async move { main.connect() });
        let command = |(number, worker)| (worker, WorkerCommand::Connect(stores.of_worker(Some(number)).clone()));
        run_commands(self.workers.iter().enumerate().map(command));
    }

    /// Writes the number of gateways that share the store to the state file whenever it changes.
    pub(super) fn follow_gateways(&self) {
        if let (Some(file), Some(counted)) = (self.state_file.clone(), self.stores.main().counted_gateways()) {
            self.control.spawn(file.follow(counted));
        }
    }
}

/// Runs commands on workers, and waits until all have run.
fn run_commands<'w>(commands: impl Iterator<Item = (&'w WorkerHandle, WorkerCommand)>) {
    let sent: Vec<_> = commands.map(|(worker, command)| worker.send(command)).collect();
    // An error means that the worker has ended, which the drain reports.
    sent.iter().for_each(|done| _ = done.recv());
}
