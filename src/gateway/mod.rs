//! The gateway: every layer put together.
//!
//! Each worker is a thread with a runtime, a listener and connections of its own, to upstreams and to the store, so that a
//! request never changes threads. What they share is behind the layer: the rules in force, what is known of the store,
//! the counters. One more thread serves the operators.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

mod descriptors;

use tokio::runtime::{self, Runtime};
use tower::Layer;

use crate::access::{self, AccessLogLayer};
use crate::admin::{self, Admin};
use crate::config::Config;
use crate::forward::Forward;
use crate::layer::{RateLimitLayer, Unmatched};
use crate::metrics::Metrics;
use crate::server::{Capacity, Drain, DrainTrigger, Server, bind};
use crate::sift::NextHop;
use crate::store::{OpenError, Store};
use crate::upstream::Upstreams;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    layer: RateLimitLayer,
    readiness: admin::Readiness,
    /// Ends the workers.
    drain: DrainTrigger,
    workers: Vec<JoinHandle<io::Result<()>>>,
    /// Ends the thread of the operators, which outlives the workers.
    control_end: tokio::sync::oneshot::Sender<()>,
    control: JoinHandle<io::Result<()>>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address is taken, or not this machine's.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The system gives no thread or runtime.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// What a worker needs to begin.
struct Worker {
    layer: RateLimitLayer,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    listeners: Vec<(Server, TcpListener)>,
    /// How many there are.
    workers: usize,
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway with so many workers, at least one; it serves when this returns.
    ///
    /// # Errors
    /// See [`StartError`]. A store or an upstream that cannot be reached is none.
    pub fn start(config: Config, workers: usize) -> Result<Self, StartError> {
        let workers = workers.max(1);
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::new());
        let store = Store::open(&config.store, Arc::clone(&metrics))?;
        let layer = RateLimitLayer::builder().next(NextHop::Origin).unmatched(Unmatched::Refuse).store(store.clone());
        let layer = layer.metrics(Arc::clone(&metrics)).from_config(&config)?;
        let (drain, drained) = Drain::new();

        let (addresses, mut listeners) = listen(&config, workers, &metrics, &drained)?;
        let admin_listener = config.admin.map(bind_one).transpose()?;
        let admin_address = admin_listener.as_ref().and_then(|listener| listener.local_addr().ok());

        let readiness = admin::Readiness::new();
        let admin = Admin::new(Arc::clone(&config), Arc::clone(&metrics), store, readiness.clone());
        let (control_end, end) = tokio::sync::oneshot::channel();
        let control = control(layer.clone(), admin, admin_listener, end).map_err(StartError::Worker)?;
        let start = |number: usize| {
            let worker = Worker {
                layer: layer.for_worker(),
                config: Arc::clone(&config),
                metrics: Arc::clone(&metrics),
                listeners: std::mem::take(&mut listeners[number]),
                workers,
            };
            let runtime = runtime()?;
            Builder::new().name(format!("worker-{number}")).spawn(move || worker.run(&runtime))
        };
        let workers = (0..workers).map(start).collect::<io::Result<_>>().map_err(StartError::Worker)?;
        Ok(Self { addresses, admin_address, layer, readiness, drain, workers, control_end, control })
    }

    /// Where clients connect: one address for each entry of `listen`, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where operators connect.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Fails the readiness check from now on, so that load balancers look elsewhere; requests are still served.
    pub fn fail_readiness(&self) {
        self.readiness.fail();
    }

    /// Ends: nothing new is accepted, idle connections close, requests that run have until `limit` to finish. Blocks
    /// until all is over.
    ///
    /// # Errors
    /// A worker that ended with an error, or by a panic.
    pub fn drain(self, limit: Duration) -> io::Result<()> {
        self.readiness.fail();
        self.layer.stop_waiting();
        self.drain.start(limit);
        let ended = self.workers.into_iter().map(joined).collect::<io::Result<Vec<()>>>();
        // The other end is gone only if the thread is.
        _ = self.control_end.send(());
        joined(self.control)?;
        ended.map(|_| ())
    }
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

/// For each worker, a listener on every address.
#[expect(clippy::type_complexity, reason = "two lists, taken apart where this is called")]
fn listen(
    config: &Config,
    workers: usize,
    metrics: &Arc<Metrics>,
    drain: &Drain,
) -> Result<(Vec<SocketAddr>, Vec<Vec<(Server, TcpListener)>>), StartError> {
    let places = descriptors::provide(config, workers);
    let capacity = Capacity::new(places, config.rules.addresses.clone(), Arc::clone(metrics));
    let mut addresses = Vec::new();
    let mut listeners: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for entry in &config.listen {
        let failed = |cause| StartError::Bind { address: entry.address, cause };
        let bound = bind(entry.address, workers).map_err(failed)?;
        addresses.extend(bound.first().and_then(|listener| listener.local_addr().ok()));
        let server = Server::within(&capacity, entry, drain.clone(), access::refused);
        for (worker, listener) in listeners.iter_mut().zip(bound) {
            worker.push((server.clone(), listener));
        }
    }
    Ok((addresses, listeners))
}

fn bind_one(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).map_err(|cause| StartError::Bind { address, cause })
}

/// The thread of the operators.
fn control(
    layer: RateLimitLayer,
    admin: Admin,
    listener: Option<TcpListener>,
    end: tokio::sync::oneshot::Receiver<()>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let runtime = runtime()?;
    let listener = {
        let _context = runtime.enter();
        listener.map(admin::Listener::new).transpose()?
    };
    let run = async move {
        layer.connect();
        tokio::spawn(tend(layer));
        match listener {
            Some(listener) => admin.serve(listener, end).await,
            None => {
                _ = end.await;
                Ok(())
            }
        }
    };
    Builder::new().name("control".into()).spawn(move || runtime.block_on(run))
}

/// Made before the thread that it runs on: whatever it lacks is told at the start.
fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// What is to be said of the store when no request comes that would find it out.
async fn tend(layer: RateLimitLayer) {
    loop {
        tokio::time::sleep(REMINDER).await;
        layer.tend();
    }
}

// === impl Worker ===

impl Worker {
    fn run(self, runtime: &Runtime) -> io::Result<()> {
        let upstreams = Arc::new(Upstreams::new(self.config.upstreams.values(), self.workers, &self.metrics));
        let service = AccessLogLayer.layer(self.layer.layer(Forward::new(upstreams)));
        runtime.block_on(async {
            self.layer.connect();
            tokio::spawn(give_back_memory());
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
const REMINDER: Duration = Duration::from_secs(2);
