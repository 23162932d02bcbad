//! Uses the domains that a control plane sends: a reload of only these domains.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Reloader;
use super::control::ControlTasks;
use super::reload_file::MAX_LOGGED;
use super::running::{ReloadReport, Running};
use super::saved_domains::SavedDomains;
use super::store_probe::UnreachableStore;
use crate::admin::{Admin, GatewayProblem, ProblemKind};
use crate::service::{DomainSink, SentResources, StreamState, follow_control_plane};
use tidegate_config::{Config, ControlPlane, Problem, WithSentDomains};
use tidegate_metrics::{Metrics, ReloadOutcome};
use tidegate_proxy::upstream::HostLookup;

/// The longest time that a start waits for the first configuration.
const MAX_START_DELAY: Duration = Duration::from_secs(3);

/// The first configuration of a control plane.
#[derive(Debug)]
pub(super) struct FirstDomains(Mutex<Receiver<()>>);

/// Receives what the control plane sends.
struct Sink {
    running: Weak<Mutex<Option<Running>>>,
    plane: watch::Receiver<Option<ControlPlane>>,
    admin: Admin,
    metrics: Arc<Metrics>,
    /// Dropped when the start need not wait any longer.
    awaited: Mutex<Option<Sender<()>>>,
    state: Mutex<State>,
}

/// The state for operators.
#[derive(Debug)]
struct State {
    stream: StreamState,
    /// The version and the errors of the last configuration, if it was rejected.
    rejected: Option<(String, Vec<String>)>,
}

/// A configuration that was applied.
struct Applied {
    report: ReloadReport,
    warnings: Vec<Problem>,
}

// === impl FirstDomains ===

impl FirstDomains {
    /// Blocks until the control plane has sent a configuration or cannot be reached, at most for [`MAX_START_DELAY`].
    pub(super) fn wait(&self) {
        if self.0.lock().recv_timeout(MAX_START_DELAY) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the control plane has not sent a configuration yet, starting without it");
        }
    }
}

// === impl Reloader ===

impl Reloader {
    /// Follows the control plane of this gateway, if it has one.
    pub(super) fn follow_control_plane(&self, hosts: HostLookup, tasks: &ControlTasks) -> FirstDomains {
        let (awaited, first) = channel();
        if let Some(running) = &*self.0.lock() {
            let plane = running.sent_domains.plane.subscribe();
            let url = plane.borrow().as_ref().map(|plane| plane.target.to_string());
            running.metrics.set_control_plane(url.as_deref());
            let sink = Sink {
                running: Arc::downgrade(&self.0),
                plane: plane.clone(),
                admin: running.admin.clone(),
                metrics: Arc::clone(&running.metrics),
                awaited: Mutex::new(url.is_some().then_some(awaited)),
                state: Mutex::new(State { stream: StreamState::New, rejected: None }),
            };
            tasks.spawn(follow_control_plane(plane, hosts, Arc::new(sink)));
        }
        FirstDomains(Mutex::new(first))
    }
}

// === impl Running ===

impl Running {
    /// Replaces the domains of the control plane.
    ///
    /// # Errors
    /// All errors of the resources. The previous domains stay in use.
    fn replace_sent_domains(&mut self, resources: SentResources) -> Result<Applied, Vec<String>> {
        let service = self.config.service.as_ref().filter(|service| service.control_plane.is_some());
        let Some(service) = service else { return Err(vec!["the rule file names no control plane".to_owned()]) };
        let WithSentDomains { service, warnings } =
            service.with_sent_domains(&resources.parts).map_err(|problems| {
                problems.iter().map(|problem| problem.to_string().trim().to_owned()).collect::<Vec<_>>()
            })?;
        let config = Config { service: Some(service), ..Config::clone(&self.config) };
        let replaced = self.replace(config, UnreachableStore::Accept);
        let report = replaced.map_err(|error| vec![error.to_string()])?;
        let before = self.sent_domains.resources.replace(resources);
        let is_new = before.map(|before| before.encoded) != self.sent_domains.encoded();
        if is_new {
            self.sent_domains.save();
        }
        Ok(Applied { report, warnings })
    }

    /// Saves what the control plane sends, in this file. Uses what it has sent to the previous process, unless it has sent its
    /// domains already.
    pub(super) fn use_saved_domains(&mut self, file: SavedDomains) {
        let plane = self.sent_domains.plane.borrow().clone();
        let saved = plane.filter(|_| self.sent_domains.resources.is_none()).and_then(|plane| file.read(&plane));
        if let Some(saved) = saved {
            match SentResources::from_encoded(saved).and_then(|resources| self.replace_sent_domains(resources)) {
                Ok(_) => tracing::info!("uses the saved domains until the control plane sends its domains"),
                Err(errors) => {
                    let error = errors.first().and_then(|error| error.lines().next()).unwrap_or_default();
                    tracing::warn!(
                        errors = errors.len(),
                        error,
                        "the saved domains are invalid, starting without them"
                    );
                }
            }
        }
        self.sent_domains.file = Some(file);
        self.sent_domains.save();
    }
}

// === impl Sink ===

impl DomainSink for Sink {
    fn apply(&self, version: &str, resources: SentResources) -> Result<(), String> {
        let applied = {
            let running = self.running.upgrade().ok_or("the gateway has ended")?;
            let mut running = running.lock();
            running.as_mut().ok_or("the gateway drains")?.replace_sent_domains(resources)
        };
        let applied = applied.map_err(|errors| self.reject(version, errors))?;
        self.record_success(version, &applied);
        Ok(())
    }

    fn reject(&self, version: &str, errors: Vec<String>) -> String {
        let (url, text) = (self.url(), errors.join("\n"));
        self.metrics.control_plane_updated(&url, ReloadOutcome::Failed);
        let rejected = Some((version.to_owned(), errors));
        // Control planes repeat a rejected configuration.
        if self.state.lock().rejected != rejected {
            let errors = rejected.iter().flat_map(|(_, errors)| errors);
            tracing::error!(control_plane = %url, version, errors = errors.clone().count(), "configuration of the control plane is invalid, the previous domains stay in use");
            for error in errors.take(MAX_LOGGED) {
                let (error, help) = error.split_once("\n  help: ").unwrap_or((error, ""));
                tracing::error!(help, "control plane: {error}");
            }
        }
        self.update(|state| state.rejected = rejected);
        self.end_wait();
        text
    }

    fn report(&self, stream: StreamState) {
        let before = std::mem::replace(&mut self.state.lock().stream, stream.clone());
        if before == stream {
            return;
        }
        let url = self.url();
        match &stream {
            StreamState::Connected => tracing::info!(control_plane = %url, "control plane is connected"),
            StreamState::Ended(end) => {
                tracing::info!(control_plane = %url, %end, "stream to the control plane has ended, reconnecting");
            }
            StreamState::Failed(error) => {
                if !matches!(before, StreamState::Failed(_)) {
                    tracing::warn!(control_plane = %url, %error, "control plane cannot be reached, retrying");
                }
                self.end_wait();
            }
            StreamState::New => {}
        }
        if stream == StreamState::New {
            self.state.lock().rejected = None;
        } else {
            self.metrics.control_plane_connected(&url, stream == StreamState::Connected);
        }
        self.update(|_| {});
    }
}

impl Sink {
    fn url(&self) -> String {
        self.plane.borrow().as_ref().map(|plane| plane.target.to_string()).unwrap_or_default()
    }

    fn record_success(&self, version: &str, Applied { report, warnings }: &Applied) {
        let (url, changes) = (self.url(), report.changes());
        let outcome = if report.diff.is_empty() { ReloadOutcome::Unchanged } else { ReloadOutcome::Applied };
        self.metrics.control_plane_updated(&url, outcome);
        if outcome == ReloadOutcome::Applied {
            tracing::info!(control_plane = %url, version, changes = changes.len(), "configuration of the control plane applied");
            changes.iter().take(MAX_LOGGED).for_each(|change| tracing::info!("control plane: {change}"));
            warnings.iter().take(MAX_LOGGED).for_each(|warning| tracing::warn!("control plane: {warning}"));
        }
        self.update(|state| state.rejected = None);
        self.end_wait();
    }

    /// Ends the wait of the start.
    fn end_wait(&self) {
        drop(self.awaited.lock().take());
    }

    /// Changes the state, and shows its problems to operators.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.admin.set_control_plane_problems(state.problems(&self.url()));
    }
}

impl State {
    fn problems(&self, url: &str) -> Vec<GatewayProblem> {
        let mut problems = Vec::new();
        if let StreamState::Failed(error) = &self.stream {
            let message = format!("cannot be reached, its last domains stay in use: {error}");
            problems.push(GatewayProblem::new(ProblemKind::ControlPlane, url, message));
        }
        if let Some((version, errors)) = &self.rejected {
            let first = errors.first().and_then(|error| error.lines().next()).unwrap_or_default();
            let count = if errors.len() > 1 { format!(" ({} errors)", errors.len()) } else { String::new() };
            let message = format!("was rejected, the previous domains stay in use: {first}{count}");
            let subject = format!("{url} version {version}");
            problems.push(GatewayProblem::new(ProblemKind::ControlPlane, subject, message));
        }
        problems
    }
}
