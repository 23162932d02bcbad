//! A worker: a thread with its own runtime, which accepts connections and serves their requests.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use socket2::Socket;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::listen_entries::Role;
use super::listeners::{Served, ServedSocket};
use super::threads::Threads;
use super::{MAINTENANCE_INTERVAL, runtime};
use crate::admin::Readiness;
use crate::service::{CallServices, TakeTokens};
use tidegate_layer::layer::RateLimitLayer;
use tidegate_proxy::access::{AccessLogLayer, Traces};
use tidegate_proxy::server::Drain;
use tidegate_proxy::service::{GatewayService, gateway_service, serve_boxed, serve_clients};
use tidegate_proxy::talkers::TalkerRecorder;
use tidegate_store::Store;

/// The parts of which a worker is built.
pub(super) struct Worker {
    pub(super) layer: RateLimitLayer,
    pub(super) traces: Traces,
    pub(super) listeners: Served,
    /// Becomes `true` when the worker must accept connections.
    pub(super) accepting: watch::Receiver<bool>,
    /// Ends the worker.
    pub(super) drain: Drain,
    /// Counts the requests of clients.
    pub(super) talkers: Option<Arc<TalkerRecorder>>,
    pub(super) readiness: Readiness,
    /// The tokens of programs that take permits.
    pub(super) tokens: TakeTokens,
}

/// The services of a worker, one for each role of a socket.
struct Services {
    proxy: GatewayService,
    calls: CallServices,
}

/// Sends commands to a running worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerHandle(UnboundedSender<Command>);

/// A running worker, and its thread.
pub(super) type StartedWorker = (WorkerHandle, JoinHandle<io::Result<()>>);

/// A command, and the channel that reports its end.
type Command = (WorkerCommand, mpsc::Sender<()>);

/// A step of a reload.
#[derive(Debug)]
pub(super) enum WorkerCommand {
    /// Opens the worker's connections to a new store.
    Connect(Store),
    /// Accepts connections on these sockets as well.
    Serve(Served),
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread, or the runtime cannot be created.
    pub(super) fn start(self, threads: &Threads, number: usize) -> io::Result<StartedWorker> {
        let runtime = runtime()?;
        let (sender, commands) = unbounded_channel();
        let thread = threads.start(format!("worker-{number}"), move || self.run(&runtime, commands))?;
        Ok((WorkerHandle(sender), thread))
    }

    fn run(mut self, runtime: &Runtime, mut commands: UnboundedReceiver<Command>) -> io::Result<()> {
        let layer = self.layer;
        let services = Services {
            proxy: gateway_service(AccessLogLayer::new(self.traces).with_talkers(self.talkers), &layer),
            calls: CallServices::new(layer.clone(), self.readiness, self.tokens),
        };
        runtime.block_on(async {
            layer.connect();
            tokio::spawn(release_freed_memory());
            loop {
                tokio::select! {
                    biased;
                    accepting = self.accepting.wait_for(|accepting| *accepting) => match accepting {
                        Ok(_) => break,
                        Err(_) => return Ok(()), // The gateway was dropped before it served.
                    },
                    Some((command, done)) = commands.recv() => {
                        self.listeners.extend(command.run());
                        _ = done.send(());
                    }
                }
            }
            let mut serving = JoinSet::new();
            services.serve(self.listeners, &mut serving);
            while !(self.drain.has_started() && serving.is_empty()) {
                tokio::select! {
                    Some((command, done)) = commands.recv() => {
                        services.serve(command.run(), &mut serving);
                        _ = done.send(());
                    }
                    Some(ended) = serving.join_next() => ended.map_err(io::Error::other)??,
                    () = self.drain.started(), if !self.drain.has_started() => {}
                    // The drain started after the loop condition was checked, and no server or command is left.
                    else => break,
                }
            }
            layer.store().release_last_slots().await;
            Ok(())
        })
    }
}

// === impl Services ===

impl Services {
    /// Serves sockets, each with the service of its role.
    fn serve(&self, sockets: Served, serving: &mut JoinSet<io::Result<()>>) {
        for ServedSocket { role, server, socket } in sockets {
            match role {
                Role::Proxy => serving.spawn(serve_clients(server, socket, self.proxy.clone())),
                Role::ServiceGrpc => serving.spawn(serve_boxed(server, socket, self.calls.grpc.clone())),
                Role::ServiceHttp => {
                    let calls = self.calls.http(is_local(&socket));
                    serving.spawn(serve_boxed(server, socket, calls))
                }
            };
        }
    }
}

/// Returns `true` if only this machine can connect to a socket: a Unix socket, or a loopback address.
fn is_local(socket: &Socket) -> bool {
    let Ok(address) = socket.local_addr() else { return false };
    let ip = address.as_socket().map(|address| address.ip().to_canonical());
    address.is_unix() || ip.is_some_and(|ip: IpAddr| ip.is_loopback())
}

// === impl WorkerHandle ===

impl WorkerHandle {
    /// Sends a command. The receiver gets a message when the worker has run the command, and an error if the worker has
    /// ended.
    pub(super) fn send(&self, command: WorkerCommand) -> mpsc::Receiver<()> {
        let (done, is_done) = mpsc::channel();
        _ = self.0.send((command, done));
        is_done
    }
}

// === impl WorkerCommand ===

impl WorkerCommand {
    /// Runs the command. Returns the listeners to serve.
    fn run(self) -> Served {
        match self {
            Self::Connect(store) => {
                store.connect();
                Vec::new()
            }
            Self::Serve(listeners) => listeners,
        }
    }
}

/// Returns freed memory to the system at intervals.
///
/// The allocator returns freed memory to the system after a delay, but only when more memory is freed. After a burst of
/// requests, a worker may free nothing for a long time. So this task frees an untouched block.
async fn release_freed_memory() {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}

/// Larger than the blocks that the allocator keeps for reuse.
const BLOCK_BYTES: usize = 4 * 1024 * 1024;
