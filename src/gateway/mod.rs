//! The gateway: workers that serve clients, and a control thread.
//!
//! Each worker is a thread with its own runtime, listeners and connections to upstreams and the store, so that a
//! request never changes threads. Workers share the active rules, the state of the store and the metrics. The control
//! thread serves operators and watches files. A [reload](Gateway::reload) replaces the configuration of all workers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

mod checked_file;
mod control;
mod control_plane;
mod descriptors;
mod error;
mod file_watch;
mod files;
pub(crate) mod handover;
mod identity_files;
mod inherited;
mod listen_entries;
mod listeners;
mod operators;
mod reload_file;
mod running;
mod saved_domains;
mod saved_operators;
mod saved_rules;
mod sent_domains;
mod socket_file;
mod socket_inode;
mod start;
mod state;
mod state_file;
mod store_probe;
mod threads;
mod upstreams;
mod worker;

use parking_lot::Mutex;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use self::control::ControlThread;
use self::control_plane::FirstDomains;
pub use self::error::{GatewayStartError, ReloadError};
pub(crate) use self::files::GATEWAY_FILES;
pub(crate) use self::inherited::InheritedSockets;
use self::listen_entries::Role;
pub(crate) use self::operators::Operators;
pub(crate) use self::reload_file::{FileReloader, ReloadTrigger, StartRules};
pub(crate) use self::running::AccessLogSwitch;
pub use self::running::ReloadReport;
use self::running::Running;
use self::saved_operators::SavedOperators;
pub(crate) use self::saved_rules::SavedRules;
pub(crate) use self::socket_file::CurrentSockets;
pub(crate) use self::state_file::StateFile;
use self::store_probe::UnreachableStore;
use self::threads::Threads;
use crate::admin;
use tidegate_config::{Config, ConfigLoadError, ListenAddress, Problems, RuleFile};
use tidegate_layer::layer::{RateLimitLayer, RateLimitLayerBuilder};
use tidegate_proxy::access::Traces;
use tidegate_proxy::server::DrainTrigger;

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(2);

/// A running gateway: an HTTP reverse proxy with rate limits. Its threads have their own Tokio runtimes, so it needs no
/// runtime of the caller.
#[derive(Debug)]
pub struct Gateway {
    admin_address: Option<ListenAddress>,
    layer: RateLimitLayer,
    operators: Operators,
    readiness: admin::Readiness,
    threads: Threads,
    /// Ends the workers.
    drain: DrainTrigger,
    workers: Vec<JoinHandle<io::Result<()>>>,
    control: ControlThread,
    /// Whether the workers accept connections.
    accepting: watch::Sender<bool>,
    reloader: Reloader,
    first_domains: FirstDomains,
    traces: Traces,
}

/// Reloads the configuration of a gateway. Clones reload the same gateway; one reload runs at a time.
#[derive(Clone, Debug)]
pub(crate) struct Reloader(Arc<Mutex<Option<Running>>>);

// === impl Gateway ===

impl Gateway {
    /// Parses a rule file for the gateway, which requires `listen`, and `upstream` in every route. Relative paths start at
    /// the current folder.
    ///
    /// # Errors
    /// Returns all errors of the text, with their positions.
    pub fn parse_config(text: &str) -> Result<Config, Problems> {
        Config::parse_for_gateway(text, GATEWAY_FILES)
    }

    /// Like [`parse_config`](Self::parse_config), but reads a file. Relative paths start at its folder.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has errors.
    pub fn load_config(path: impl AsRef<Path>) -> Result<Config, ConfigLoadError> {
        Config::load_for_gateway(path, GATEWAY_FILES)
    }

    /// Returns a builder for a [`RateLimitLayer`] of your own service that verifies credentials (`identities`), as the
    /// gateway does. It reads their files once.
    pub fn layer_builder() -> RateLimitLayerBuilder {
        RateLimitLayer::builder().checks(GATEWAY_FILES)
    }

    /// Starts a gateway with `workers` threads for requests, at least one, and one control thread, which also serves
    /// the admin listener. The gateway serves requests when this function returns.
    ///
    /// # Errors
    /// See [`GatewayStartError`]. An unreachable store or upstream is not an error.
    pub fn start(config: Config, workers: usize) -> Result<Self, GatewayStartError> {
        let gateway = Self::start_on(config, workers, InheritedSockets::default())?;
        gateway.serve();
        Ok(gateway)
    }

    /// Starts a gateway that uses the inherited sockets whose addresses are in the rule file. Clients wait in the accept
    /// queues until the gateway [serves](Self::serve).
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub(crate) fn start_on(
        config: Config,
        workers: usize,
        inherited: InheritedSockets,
    ) -> Result<Self, GatewayStartError> {
        start::start(config, workers.max(1), inherited)
    }

    /// Blocks until the overrides of the store are known or the store did not reply in time, and until the control plane
    /// has sent a configuration or did not do so in time. Then starts to accept connections.
    pub(crate) fn serve(&self) {
        self.control.wait_for_overrides();
        self.first_domains.wait();
        self.accepting.send_replace(true);
    }

    /// Replaces the configuration. Requests in flight finish with the rules with which they started. Permits in use,
    /// counters and client connections are kept; so are the connections to upstreams whose settings did not change.
    /// Blocks until all workers use the new configuration.
    ///
    /// # Errors
    /// See [`ReloadError`]. The previous configuration stays in use.
    pub fn reload(&self, config: Config) -> Result<ReloadReport, ReloadError> {
        self.reloader.reload(config, UnreachableStore::Reject)
    }

    /// Returns a reloader of the rule file, or `None` if the gateway drains. `start` is what was read at the start. If
    /// `is_watched`, the gateway reloads the rule file when one of its files changes, unless it was a pipe.
    pub(crate) fn file_reloader(&self, file: RuleFile, start: StartRules, is_watched: bool) -> Option<FileReloader> {
        let (config, admin, metrics) = {
            let running = self.reloader.0.lock();
            let running = running.as_ref()?;
            (Arc::clone(&running.config), running.admin.clone(), Arc::clone(&running.metrics))
        };
        let is_watched = is_watched && (start.rejected.is_some() || start.sources.can_be_read_again());
        let reloader = FileReloader::new(file, start, &config.teams, self.reloader.clone(), admin.clone(), metrics);
        admin.enable_reload(reloader.hook());
        if is_watched {
            self.control.tasks().watch_rules(reloader.watcher());
        }
        Some(reloader)
    }

    /// Sets the name that this gateway announces to the others. By default it is the host name.
    pub(crate) fn set_name(&self, name: admin::GatewayName) {
        if let Some(running) = self.reloader.0.lock().as_ref() {
            running.admin.set_name(name);
        }
    }

    /// Allows reloads to change the destination of the access log.
    pub(crate) fn set_access_log_switch(&self, switch: Option<AccessLogSwitch>) {
        if let Some(running) = self.reloader.0.lock().as_mut() {
            running.access_log = switch;
        }
    }

    /// Returns the address of each entry of `listen`, with the port that the system chose for port 0.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.addresses_of(Role::Proxy)
    }

    /// Returns the address of the rate limit service for gRPC, with the port that the system chose for port 0; `None` if it
    /// is off.
    pub fn service_grpc_address(&self) -> Option<ListenAddress> {
        self.addresses_of(Role::ServiceGrpc).pop()
    }

    /// Returns the address of the rate limit service for HTTP, with the port that the system chose for port 0; `None` if it
    /// is off.
    pub fn service_http_address(&self) -> Option<ListenAddress> {
        self.addresses_of(Role::ServiceHttp).pop()
    }

    fn addresses_of(&self, role: Role) -> Vec<ListenAddress> {
        self.reloader.0.lock().as_ref().map_or_else(Vec::new, |running| running.listeners.addresses(role))
    }

    /// Returns the address of the admin listener; `None` with `admin: off`.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin_address.as_ref()
    }

    /// Makes the readiness check (`/readyz`) fail, so that load balancers remove this gateway. It still serves requests.
    pub fn fail_readiness(&self) {
        self.readiness.fail();
    }

    /// Returns a receiver that becomes `true` when a worker or the control thread has ended with an error or a panic.
    /// The gateway is no longer ready then, and the caller must drain it.
    pub(crate) fn failed(&self) -> watch::Receiver<bool> {
        self.threads.failed()
    }

    /// Checks the certificate files now instead of after the current interval. Does not wait for the check: new
    /// connections use changed certificates a moment later.
    pub fn check_certificates(&self) {
        self.control.tasks().check_certificates();
    }

    /// Returns the listening sockets, as later reloads change them.
    pub(crate) fn sockets(&self) -> CurrentSockets {
        let running = self.reloader.0.lock();
        running.as_ref().map_or_else(CurrentSockets::default, |running| running.listeners.current().clone())
    }

    /// Drains and ends the gateway: it accepts no connections, closes idle ones, and gives running requests up to
    /// `limit` to finish. Blocks until all workers have ended.
    ///
    /// # Errors
    /// A worker or the control thread ended with an error or a panic.
    pub fn drain(self, limit: Duration) -> io::Result<()> {
        self.end(limit, true)
    }

    /// Ends the gateway. If it `saves`, the overrides are saved at the end.
    fn end(self, limit: Duration, saves: bool) -> io::Result<()> {
        self.readiness.fail();
        self.layer.stop_waiting();
        self.layer.recorder().close();
        let running = self.reloader.0.lock().take();
        let state_file = running.as_ref().and_then(|running| running.state_file.as_ref()).filter(|_| saves);
        let saved = state_file.map(|file| SavedOperators::of_state(file.path()));
        if let Some(running) = running {
            running.listeners.drain(limit);
        }
        self.drain.start(limit);
        let ended = self.workers.into_iter().map(joined).collect::<io::Result<Vec<()>>>();
        self.traces.flush();
        saved.iter().for_each(|saved| _ = saved.write(&self.operators));
        self.control.end()?;
        ended.map(|_| ())
    }

    /// Drains as [`drain`](Self::drain) does, but stops serving operators first: the successor has the same admin
    /// socket, and saves the overrides.
    ///
    /// # Errors
    /// See [`drain`](Self::drain).
    pub(crate) fn drain_after_handover(self, limit: Duration) -> io::Result<()> {
        self.control.close();
        self.end(limit, false)
    }
}

// === impl Reloader ===

impl Reloader {
    /// See [`Gateway::reload`].
    pub(crate) fn reload(&self, config: Config, unreachable: UnreachableStore) -> Result<ReloadReport, ReloadError> {
        self.0.lock().as_mut().ok_or(ReloadError::Draining)?.reload(config, unreachable)
    }
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

/// Creates the runtime of a thread. The caller does so before it spawns the thread, so that a failure prevents the
/// start.
fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}
