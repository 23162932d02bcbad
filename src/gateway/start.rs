//! Starts a gateway: opens what it needs, then starts its threads.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::control::{ControlTasks, ControlThread};
use super::error::GatewayStartError;
use super::inherited::{self, InheritedSockets};
use super::listeners::{Listeners, Served};
use super::operators::Operators;
use super::running::Running;
use super::sent_domains::SentDomains;
use super::threads::Threads;
use super::upstreams::WorkerUpstreams;
use super::worker::{StartedWorker, Worker, WorkerHandle};
use super::{Gateway, Reloader};
use crate::admin::{Admin, Readiness};
use crate::credentials::Verifiers;
use crate::service::TakeTokens;
use tidegate_config::Config;
use tidegate_layer::layer::{RateLimitLayer, Stores, Unmatched};
use tidegate_layer::rejected::RejectedClients;
use tidegate_metrics::Metrics;
use tidegate_proxy::access::Traces;
use tidegate_proxy::forward::find_in;
use tidegate_proxy::server::Drain;
use tidegate_proxy::talkers::Talkers;
use tidegate_proxy::upstream::{NameTasks, RequestBody, Upstreams, run_checks};
use tidegate_rules::request::sanitize::NextHop;
use tidegate_store::Store;

/// The parts of a gateway whose threads have not started.
struct Opened {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    layer: RateLimitLayer,
    admin: Admin,
    readiness: Readiness,
    stores: Stores,
    listeners: Listeners,
    upstreams: WorkerUpstreams,
    talkers: Arc<Talkers>,
}

impl Opened {
    fn running(self, checked: watch::Sender<Upstreams>, workers: Vec<WorkerHandle>, control: ControlTasks) -> Running {
        let Self { config, metrics, layer, admin, readiness: _, stores, listeners, upstreams, talkers: _ } = self;
        let (state_file, access_log) = (None, None);
        let sent_domains = SentDomains::new(&config);
        Running {
            config,
            metrics,
            layer,
            admin,
            stores,
            upstreams,
            checked,
            listeners,
            workers,
            control,
            state_file,
            access_log,
            sent_domains,
        }
    }
}

/// Starts a gateway with at least one worker. See [`Gateway::start_on`].
pub(super) fn start(config: Config, workers: usize, inherited: InheritedSockets) -> Result<Gateway, GatewayStartError> {
    let (opened, names) = open(config, workers, inherited)?;
    let (layer, readiness) = (opened.layer.clone(), opened.readiness.clone());
    let talkers = Arc::clone(&opened.talkers);
    let admin_socket = opened.listeners.admin_socket().map_err(GatewayStartError::Worker)?;
    let admin_address = admin_socket.as_ref().and_then(inherited::local_address);
    let served = opened.listeners.distribute(workers)?;
    let threads = Threads::new(readiness.clone());
    let control = ControlThread::start(&threads, layer.clone(), opened.admin.clone(), admin_socket);
    let control = control.map_err(GatewayStartError::Worker)?;
    let tasks = control.tasks().clone();
    tasks.spawn(names.run());
    let (checked, to_check) = watch::channel(opened.upstreams.checked());
    tasks.spawn(run_checks(to_check));
    let (accepting, accept) = watch::channel(false);
    let (drain, drained) = Drain::new();
    let traces = Traces::start(&opened.metrics, &layer, &opened.upstreams.resolver().hosts());
    let tokens = TakeTokens::new(opened.config.admin_tokens.clone());
    let worker = |number, listeners| {
        let (layer, traces) = (layer.for_gateway_worker(number), traces.clone());
        let talkers = talkers.recorder(number);
        let (accepting, drain, readiness) = (accept.clone(), drained.clone(), readiness.clone());
        Worker { layer, traces, listeners, accepting, drain, talkers, readiness, tokens: tokens.clone() }
    };
    let (handles, workers) = start_workers(&threads, served, worker)?.into_iter().unzip();
    let operators = Operators::new(layer.clone(), opened.admin.clone());
    let running = opened.running(checked, handles, tasks);
    watch_files(&running);
    running.upstreams.resolver().wait_for_names();
    let (hosts, tasks) = (running.upstreams.resolver().hosts(), running.control.clone());
    let reloader = Reloader(Arc::new(Mutex::new(Some(running))));
    let first_domains = reloader.follow_control_plane(hosts, &tasks);
    Ok(Gateway {
        admin_address,
        layer,
        operators,
        readiness,
        threads,
        drain,
        workers,
        control,
        accepting,
        reloader,
        first_domains,
        traces,
    })
}

/// Opens the store and the listeners, and applies the rules to the layer of all workers.
fn open(config: Config, workers: usize, inherited: InheritedSockets) -> Result<(Opened, NameTasks), GatewayStartError> {
    let config = Arc::new(config);
    let metrics = Arc::new(Metrics::of_gateway(&config.buckets));
    metrics.config_loaded();
    metrics.set_team_files(config.teams.iter().map(|team| (&*team.name, !team.is_invalid())));
    let store = Store::open(&config.store, Arc::clone(&metrics))?;
    let rejected = Arc::new(RejectedClients::new(workers));
    let layer = open_layer(&config, &store, &metrics, &rejected)?;
    let listeners = Listeners::open(&config, workers, &metrics, inherited)?;
    let (upstreams, names) = WorkerUpstreams::new(&config.upstreams, &config.dns_servers, workers, &metrics);
    let stores = Stores::new(store, workers);
    layer.replace_all(&config, stores.clone(), &find_in(upstreams.per_worker()), upstreams.services());
    let readiness = Readiness::new();
    let active = (Arc::clone(&config), upstreams.shared());
    let talkers = Arc::new(Talkers::new(workers));
    let admin = Admin::new(active, layer.clone(), Arc::clone(&metrics), readiness.clone()).with_rejected(rejected);
    let admin = admin.with_talkers(Arc::clone(&talkers));
    Ok((Opened { config, metrics, layer, admin, readiness, stores, listeners, upstreams, talkers }, names))
}

/// Creates the layer of all workers.
fn open_layer(
    config: &Config,
    store: &Store,
    metrics: &Arc<Metrics>,
    rejected: &Arc<RejectedClients>,
) -> Result<RateLimitLayer, GatewayStartError> {
    let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Reject).store(store.clone());
    let layer =
        layer.metrics(Arc::clone(metrics)).record_rejected(Arc::clone(rejected)).peek_body(RequestBody::peek_any);
    Ok(layer.from_config(config)?)
}

/// Starts the threads of the workers, each with its listeners.
fn start_workers(
    threads: &Threads,
    served: Vec<Served>,
    worker: impl Fn(usize, Served) -> Worker,
) -> Result<Vec<StartedWorker>, GatewayStartError> {
    let start = |(number, listeners)| worker(number, listeners).start(threads, number);
    let started: io::Result<_> = served.into_iter().enumerate().map(start).collect();
    started.map_err(GatewayStartError::Worker)
}

/// Watches the files of certificates and credentials.
fn watch_files(running: &Running) {
    let Running { config, metrics, listeners, upstreams, control, .. } = running;
    control.watch(listeners.watchers(&[], metrics));
    control.watch(upstreams.watchers(metrics));
    let hosts = upstreams.resolver().hosts();
    control.serve_identities(&Verifiers::of(&config.verifier), &Verifiers::default(), &hosts, metrics);
}
