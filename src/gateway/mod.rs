//! The gateway: workers that serve clients, and an admin thread.
//!
//! Each worker is a thread with its own runtime, listeners and connections to upstreams and the store, so that a
//! request never changes threads. Workers share the active rules, the state of the store and the metrics. The admin
//! thread serves operators and watches certificate files.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

mod descriptors;
pub(crate) mod handover;
mod inherited;
mod listeners;
mod socket_file;
mod socket_inode;
mod state;
mod state_file;

use socket2::Socket;
use tokio::runtime::{self, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tower::Layer;

pub(crate) use self::inherited::InheritedSockets;
use self::listeners::Listeners;
pub(crate) use self::socket_file::ListeningSocket;
pub(crate) use self::state_file::StateFile;
use crate::access::AccessLogLayer;
use crate::admin::{self, Admin};
use crate::config::{Config, ListenAddress};
use crate::forward::Forward;
use crate::layer::{LayerError, RateLimitLayer, Unmatched};
use crate::metrics::Metrics;
use crate::sanitize::NextHop;
use crate::server::{Drain, DrainTrigger, Server};
use crate::store::{Store, StoreOpenError};
use crate::tls::CertificateWatcher;
use crate::upstream::settings::UpstreamSettings;
use crate::upstream::tls::UpstreamTlsConfigs;
use crate::upstream::{TargetStates, Upstreams};

/// A running gateway: an HTTP reverse proxy with rate limits. Its threads have their own Tokio runtimes, so it needs no
/// runtime of the caller.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<ListenAddress>,
    admin_address: Option<ListenAddress>,
    layer: RateLimitLayer,
    readiness: admin::Readiness,
    /// Starts the drain of the workers.
    drain: DrainTrigger,
    workers: Vec<JoinHandle<io::Result<()>>>,
    admin_thread: AdminThread,
    /// Whether the workers accept connections.
    accepting: watch::Sender<bool>,
    /// All listening sockets, for a successor.
    sockets: Arc<[ListeningSocket]>,
}

/// The thread that serves operators. It outlives the workers.
#[derive(Debug)]
struct AdminThread {
    thread: JoinHandle<io::Result<()>>,
    runtime: runtime::Handle,
    /// Whether the admin listener is closed.
    closed: watch::Sender<bool>,
    /// Requests an immediate check of the certificate files.
    certificate_checks: watch::Sender<()>,
    end: oneshot::Sender<()>,
}

/// The error of [`Gateway::start`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayStartError {
    /// A listener cannot be opened, for example because its address is in use or does not belong to this machine.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: ListenAddress,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// systemd passes a socket whose address is not in the rule file.
    #[error("systemd passed a socket on {address}, but no entry of `listen` or `admin` has this address")]
    Unclaimed {
        /// The address of the socket.
        address: ListenAddress,
    },
    /// TLS cannot be set up: a certificate or key file has changed since the rule file was checked.
    #[error(transparent)]
    Tls(Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot be opened; see [`StoreOpenError`]. An unreachable store is not an error.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The layer cannot be built. A gateway opens its own store, so this does not occur today.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The operating system cannot start a thread, or the runtime cannot be created.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// The parts of which a worker is built.
struct Worker {
    layer: RateLimitLayer,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    tls_configs: Arc<UpstreamTlsConfigs>,
    targets: Arc<TargetStates>,
    listeners: Vec<(Server, Socket)>,
    /// Becomes `true` when the worker must accept connections.
    accepting: watch::Receiver<bool>,
    /// The number of workers.
    workers: usize,
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway with `workers` threads for requests, at least one, and one thread for the admin listener. It
    /// serves requests when this returns.
    ///
    /// # Errors
    /// See [`GatewayStartError`]. An unreachable store or upstream is not an error.
    pub fn start(config: Config, workers: usize) -> Result<Self, GatewayStartError> {
        let gateway = Self::start_on(config, workers, InheritedSockets::default())?;
        gateway.serve();
        Ok(gateway)
    }

    /// Starts a gateway that uses inherited sockets for addresses of the rule file. Clients wait in the accept queues
    /// until the gateway [serves](Self::serve).
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub(crate) fn start_on(
        config: Config,
        workers: usize,
        inherited: InheritedSockets,
    ) -> Result<Self, GatewayStartError> {
        let workers = workers.max(1);
        let config = Arc::new(config);
        config.upstreams.values().for_each(warn_if_unverified);
        let metrics = Arc::new(Metrics::with_buckets(&config.buckets));
        let store = Store::open(&config.store, Arc::clone(&metrics))?;
        let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Reject).store(store.clone());
        let layer = layer.metrics(Arc::clone(&metrics)).from_config(&config)?;
        let (drain, drained) = Drain::new();

        let mut listeners = Listeners::open(&config, workers, &metrics, &drained, inherited)?;
        let admin_address = listeners.admin.as_ref().and_then(inherited::local_address);

        let tls_configs = Arc::new(UpstreamTlsConfigs::read(config.upstreams.values()));
        listeners.watchers.extend(tls_configs.watchers(&metrics));
        let targets = Arc::new(TargetStates::new(config.upstreams.values(), &metrics));

        let readiness = admin::Readiness::new();
        let admin = Admin::new(Arc::clone(&config), Arc::clone(&metrics), store, readiness.clone());
        let admin_thread = AdminThread::start(layer.clone(), admin, listeners.admin, listeners.watchers)
            .map_err(GatewayStartError::Worker)?;
        let (accepting, accept) = watch::channel(false);
        let start = |number: usize| {
            let worker = Worker {
                layer: layer.for_worker(),
                config: Arc::clone(&config),
                metrics: Arc::clone(&metrics),
                tls_configs: Arc::clone(&tls_configs),
                targets: Arc::clone(&targets),
                listeners: std::mem::take(&mut listeners.per_worker[number]),
                accepting: accept.clone(),
                workers,
            };
            let runtime = runtime()?;
            Builder::new().name(format!("worker-{number}")).spawn(move || worker.run(&runtime))
        };
        let workers = (0..workers).map(start).collect::<io::Result<_>>().map_err(GatewayStartError::Worker)?;
        let Listeners { addresses, sockets, .. } = listeners;
        let sockets = sockets.into();
        Ok(Self { addresses, admin_address, layer, readiness, drain, workers, admin_thread, accepting, sockets })
    }

    /// Starts to accept connections.
    pub(crate) fn serve(&self) {
        self.accepting.send_replace(true);
    }

    /// Returns the address of each entry of `listen`, with the port that the system chose for port 0.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Returns the address of the admin listener; `None` with `admin: off`.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin_address.as_ref()
    }

    /// Makes the readiness check (`/readyz`) fail, so that load balancers remove this gateway. It still serves requests.
    pub fn fail_readiness(&self) {
        self.readiness.fail();
    }

    /// Checks the certificate files without waiting for the next interval. Returns at once: new connections use changed
    /// certificates a moment later.
    pub fn check_certificates(&self) {
        self.admin_thread.certificate_checks.send_replace(());
    }

    /// Returns all listening sockets.
    pub(crate) fn sockets(&self) -> Arc<[ListeningSocket]> {
        Arc::clone(&self.sockets)
    }

    /// Drains and ends the gateway: it accepts no connections, closes idle ones, and gives running requests up to
    /// `limit` to finish. Blocks until all workers have ended.
    ///
    /// # Errors
    /// A worker ended with an error or a panic.
    pub fn drain(self, limit: Duration) -> io::Result<()> {
        self.readiness.fail();
        self.layer.stop_waiting();
        drop(self.sockets); // Otherwise, clients could still connect.
        self.drain.start(limit);
        let ended = self.workers.into_iter().map(joined).collect::<io::Result<Vec<()>>>();
        self.admin_thread.end()?;
        ended.map(|_| ())
    }

    /// Drains as [`drain`](Self::drain) does, but stops serving operators first: the successor has the same admin
    /// socket.
    ///
    /// # Errors
    /// See [`drain`](Self::drain).
    pub(crate) fn drain_after_handover(self, limit: Duration) -> io::Result<()> {
        self.admin_thread.close();
        self.drain(limit)
    }
}

/// Warns at every start about `verify: false`, so that operators cannot miss it.
fn warn_if_unverified(upstream: &UpstreamSettings) {
    if upstream.tls.as_ref().is_some_and(|tls| !tls.verify) {
        tracing::warn!(
            upstream = %upstream.name,
            "`verify: false`: certificates are not verified, an attacker in the network can read and change all traffic"
        );
    }
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

// === impl AdminThread ===

impl AdminThread {
    fn start(
        layer: RateLimitLayer,
        admin: Admin,
        listener: Option<Socket>,
        watchers: Vec<CertificateWatcher>,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let (closed, closing) = watch::channel(false);
        let (certificate_checks, check_requests) = watch::channel(());
        let listener = {
            let _context = runtime.enter();
            listener.map(|listener| admin::Listener::new(listener, closing.clone())).transpose()?
        };
        let (end, ending) = oneshot::channel();
        let run = async move {
            layer.connect();
            tokio::spawn(run_maintenance(layer));
            for watcher in watchers {
                tokio::spawn(watch_certificates(watcher, check_requests.clone()));
            }
            let mut serving = pin!(async {
                match listener {
                    Some(listener) => admin.serve(listener).await,
                    None => pending().await,
                }
            });
            tokio::select! {
                () = &mut serving => Ok(()),
                _ = ending => {
                    if *closing.borrow() {
                        // Connections that were accepted before the close still get their responses.
                        _ = timeout(ADMIN_GRACE, serving).await;
                    }
                    Ok(())
                }
            }
        };
        let handle = runtime.handle().clone();
        let thread = Builder::new().name("control".into()).spawn(move || runtime.block_on(run))?;
        Ok(Self { thread, runtime: handle, closed, certificate_checks, end })
    }

    /// Runs a task on this thread until the gateway ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Closes the admin listener.
    fn close(&self) {
        self.closed.send_replace(true);
    }

    fn end(self) -> io::Result<()> {
        _ = self.end.send(());
        joined(self.thread)
    }
}

/// Creates the runtime of a thread. The caller does so before it spawns the thread, so that a failure prevents the
/// start.
fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// Maintains the store at intervals, so that outages are also noticed and logged while no requests arrive.
async fn run_maintenance(layer: RateLimitLayer) {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        layer.run_maintenance();
    }
}

/// Checks certificate files at intervals and on request. Uses a blocking thread, because the files may be on a network
/// file system.
async fn watch_certificates(mut watcher: CertificateWatcher, mut check_requests: watch::Receiver<()>) {
    loop {
        if let Ok(Err(_)) = timeout(watcher.check_interval(), check_requests.changed()).await {
            return; // The gateway has been dropped.
        }
        let check = move || {
            watcher.check();
            watcher
        };
        watcher = match tokio::task::spawn_blocking(check).await {
            Ok(watcher) => watcher,
            Err(error) => return tracing::error!(%error, "certificate watcher failed, changes are no longer noticed"),
        };
    }
}

// === impl Worker ===

impl Worker {
    fn run(mut self, runtime: &Runtime) -> io::Result<()> {
        let Self { config, workers, metrics, tls_configs, targets, .. } = &self;
        let upstreams =
            Upstreams::with_shared_state(config.upstreams.values(), *workers, metrics, tls_configs, targets);
        let upstreams = Arc::new(upstreams);
        let service = AccessLogLayer.layer(self.layer.layer(Forward::new(upstreams)));
        runtime.block_on(async {
            self.layer.connect();
            tokio::spawn(release_freed_memory());
            if self.accepting.wait_for(|accepting| *accepting).await.is_err() {
                return Ok(()); // The gateway was dropped before it served.
            }
            let mut serving = tokio::task::JoinSet::new();
            for (server, listener) in self.listeners {
                serving.spawn(server.serve(listener, service.clone()));
            }
            while let Some(ended) = serving.join_next().await {
                ended.map_err(io::Error::other)??;
            }
            Ok(())
        })
    }
}

/// Frees an untouched block of memory at intervals.
///
/// The allocator returns freed memory to the system after a delay, but only when more memory is freed. After a burst of
/// requests, a worker may free nothing for a long time.
async fn release_freed_memory() {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}

/// Larger than the blocks that the allocator keeps for reuse.
const BLOCK_BYTES: usize = 4 * 1024 * 1024;
/// How long requests of operators may take after the admin socket has been handed over.
const ADMIN_GRACE: Duration = Duration::from_secs(1);
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(2);
