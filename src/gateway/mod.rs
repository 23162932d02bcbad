//! The gateway: every layer put together.
//!
//! Each worker is a thread with a runtime, a listener and connections of its own, to upstreams and to the store, so that a
//! request never changes threads. What they share is behind the layer: the rules in force, what is known of the store,
//! the counters. One more thread serves the operators.

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

pub(crate) use self::inherited::Inherited;
use self::listeners::Listeners;
pub(crate) use self::socket_file::Listening;
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
use crate::tls::{CertificateWatcher, TlsSetupError};
use crate::upstream::settings::UpstreamSettings;
use crate::upstream::tls::UpstreamTlsConfigs;
use crate::upstream::{TargetStates, Upstreams};

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<ListenAddress>,
    admin_address: Option<ListenAddress>,
    layer: RateLimitLayer,
    readiness: admin::Readiness,
    /// Ends the workers.
    drain: DrainTrigger,
    workers: Vec<JoinHandle<io::Result<()>>>,
    control: Control,
    /// Whether the workers accept connections.
    accepting: watch::Sender<bool>,
    /// All that it listens on, for a successor.
    sockets: Arc<[Listening]>,
}

/// The thread of the operators, which outlives the workers.
#[derive(Debug)]
struct Control {
    thread: JoinHandle<io::Result<()>>,
    runtime: runtime::Handle,
    /// Whether it accepts no more operators.
    closed: watch::Sender<bool>,
    /// Changes when somebody asks to look at the files of certificates.
    look: watch::Sender<()>,
    end: oneshot::Sender<()>,
}

/// The error of a gateway that cannot start.
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
    #[error("systemd passes a socket on {address}, which no entry of `listen` or `admin` names")]
    Unclaimed {
        /// The address of the socket.
        address: ListenAddress,
    },
    /// TLS cannot be set up: a certificate or key file has changed since the rule file was checked.
    #[error(transparent)]
    Tls(Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The layer cannot be built.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The operating system cannot start a thread, or the runtime cannot be created.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// What a worker needs to begin.
struct Worker {
    layer: RateLimitLayer,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    tls_configs: Arc<UpstreamTlsConfigs>,
    targets: Arc<TargetStates>,
    listeners: Vec<(Server, Socket)>,
    /// Becomes `true` when it is to accept connections.
    accepting: watch::Receiver<bool>,
    /// How many there are.
    workers: usize,
}

impl From<TlsSetupError> for GatewayStartError {
    fn from(error: TlsSetupError) -> Self {
        Self::Tls(Box::new(error))
    }
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway with so many workers, at least one; it serves when this returns.
    ///
    /// # Errors
    /// See [`GatewayStartError`]. A store or an upstream that cannot be reached is none.
    pub fn start(config: Config, workers: usize) -> Result<Self, GatewayStartError> {
        let gateway = Self::start_on(config, workers, Inherited::default())?;
        gateway.serve();
        Ok(gateway)
    }

    /// Starts a gateway that listens on these sockets, where the rule file names their addresses. Clients wait in the queues of
    /// the sockets until it [serves](Self::serve).
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub(crate) fn start_on(config: Config, workers: usize, inherited: Inherited) -> Result<Self, GatewayStartError> {
        let workers = workers.max(1);
        let config = Arc::new(config);
        config.upstreams.values().for_each(warn_of_trust);
        let metrics = Arc::new(Metrics::new());
        let store = Store::open(&config.store, Arc::clone(&metrics))?;
        let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Reject).store(store.clone());
        let layer = layer.metrics(Arc::clone(&metrics)).from_config(&config)?;
        let (drain, drained) = Drain::new();

        let mut listeners = Listeners::open(&config, workers, &metrics, &drained, inherited)?;
        let admin_address = listeners.admin.as_ref().and_then(inherited::address);

        let tls_configs = Arc::new(UpstreamTlsConfigs::read(config.upstreams.values()));
        listeners.watches.extend(tls_configs.watchers(&metrics));
        let targets = Arc::new(TargetStates::new(config.upstreams.values(), &metrics));

        let readiness = admin::Readiness::new();
        let admin = Admin::new(Arc::clone(&config), Arc::clone(&metrics), store, readiness.clone());
        let control = Control::start(layer.clone(), admin, listeners.admin, listeners.watches)
            .map_err(GatewayStartError::Worker)?;
        let (accepting, accept) = watch::channel(false);
        let start = |number: usize| {
            let worker = Worker {
                layer: layer.for_worker(),
                config: Arc::clone(&config),
                metrics: Arc::clone(&metrics),
                tls_configs: Arc::clone(&tls_configs),
                targets: Arc::clone(&targets),
                listeners: std::mem::take(&mut listeners.of_workers[number]),
                accepting: accept.clone(),
                workers,
            };
            let runtime = runtime()?;
            Builder::new().name(format!("worker-{number}")).spawn(move || worker.run(&runtime))
        };
        let workers = (0..workers).map(start).collect::<io::Result<_>>().map_err(GatewayStartError::Worker)?;
        let Listeners { addresses, sockets, .. } = listeners;
        let sockets = sockets.into();
        Ok(Self { addresses, admin_address, layer, readiness, drain, workers, control, accepting, sockets })
    }

    /// Accepts connections from now on.
    pub(crate) fn serve(&self) {
        self.accepting.send_replace(true);
    }

    /// Where clients connect: one address for each entry of `listen`, with the ports that the system chose.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Where operators connect.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin_address.as_ref()
    }

    /// Fails the readiness check from now on, so that load balancers look elsewhere; requests are still served.
    pub fn fail_readiness(&self) {
        self.readiness.fail();
    }

    /// Looks now whether certificates have been replaced, and not when it is time for the next look. Clients that connect some moments
    /// later are shown the new ones.
    pub fn look_at_certificates(&self) {
        self.control.look.send_replace(());
    }

    /// All that it listens on.
    pub(crate) fn sockets(&self) -> Arc<[Listening]> {
        Arc::clone(&self.sockets)
    }

    /// Ends: nothing new is accepted, idle connections close, requests that run have until `limit` to finish. Blocks
    /// until all is over.
    ///
    /// # Errors
    /// A worker that ended with an error, or by a panic.
    pub fn drain(self, limit: Duration) -> io::Result<()> {
        self.readiness.fail();
        self.layer.stop_waiting();
        drop(self.sockets); // or clients could connect to the end
        self.drain.start(limit);
        let ended = self.workers.into_iter().map(joined).collect::<io::Result<Vec<()>>>();
        self.control.end()?;
        ended.map(|_| ())
    }

    /// Ends as [`drain`](Self::drain) does, and leaves operators to the successor, which listens on the same socket.
    ///
    /// # Errors
    /// See [`drain`](Self::drain).
    pub(crate) fn leave(self, limit: Duration) -> io::Result<()> {
        self.control.close();
        self.drain(limit)
    }
}

/// Nobody forgets it, and nobody can say that it was not told.
fn warn_of_trust(upstream: &UpstreamSettings) {
    if upstream.tls.as_ref().is_some_and(|tls| !tls.verify) {
        let why =
            "`verify: false`: certificates are not verified, so anybody on the way can read and change everything";
        tracing::warn!(upstream = %upstream.name, "{why}");
    }
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

// === impl Control ===

impl Control {
    fn start(
        layer: RateLimitLayer,
        admin: Admin,
        listener: Option<Socket>,
        watches: Vec<CertificateWatcher>,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let (closed, closing) = watch::channel(false);
        let (look, asked) = watch::channel(());
        let listener = {
            let _context = runtime.enter();
            listener.map(|listener| admin::Listener::new(listener, closing.clone())).transpose()?
        };
        let (end, ending) = oneshot::channel();
        let run = async move {
            layer.connect();
            tokio::spawn(run_maintenance(layer));
            watches.into_iter().for_each(|watch| drop(tokio::spawn(watch_certificates(watch, asked.clone()))));
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
                        // Who was accepted before the close is answered.
                        _ = timeout(LAST_ANSWERS, serving).await;
                    }
                    Ok(())
                }
            }
        };
        let handle = runtime.handle().clone();
        let thread = Builder::new().name("control".into()).spawn(move || runtime.block_on(run))?;
        Ok(Self { thread, runtime: handle, closed, look, end })
    }

    /// Runs a task on this thread until the gateway ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Accepts no more operators.
    fn close(&self) {
        self.closed.send_replace(true);
    }

    fn end(self) -> io::Result<()> {
        _ = self.end.send(());
        joined(self.thread)
    }
}

/// Made before the thread that it runs on: whatever it lacks is told at the start.
fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// What is to be said of the store when no request comes that would find it out.
async fn run_maintenance(layer: RateLimitLayer) {
    loop {
        tokio::time::sleep(REMINDER).await;
        layer.run_maintenance();
    }
}

/// Checks certificate files at intervals, and at once after SIGHUP. Uses a blocking thread, because the files may be on a
/// network file system.
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
            tokio::spawn(give_back_memory());
            if self.accepting.wait_for(|accepting| *accepting).await.is_err() {
                return Ok(()); // the gateway is not to serve
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

/// The allocator returns memory to the system some time after it was freed, but only when more is freed. After a rush
/// nothing may be freed for long; so a block that was never touched is.
async fn give_back_memory() {
    loop {
        tokio::time::sleep(REMINDER).await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK)));
    }
}

/// Large enough not to be kept for the next who needs as much.
const BLOCK: usize = 4 * 1024 * 1024;
/// How long operators may take for what they asked of a gateway that has a successor.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
const REMINDER: Duration = Duration::from_secs(2);
