//! The listeners of a gateway and their sockets, for clients and operators: inherited, or opened here. A reload adds,
//! changes and removes listeners; the sockets of all others stay open.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use super::inherited::{self, InheritedSockets};
use super::listen_entries::{ListenEntry, Role, listen_entries};
use super::socket_file::{self, CurrentSockets, ListeningSocket, OWNER_ONLY};
use super::{GatewayStartError, descriptors};
use tidegate_config::{Config, Listen, ListenAddress};
use tidegate_metrics::Metrics;
use tidegate_proxy::access::log_rejection;
use tidegate_proxy::server::{
    Drain, DrainReason, DrainTrigger, GatewayConnections, Server, bind, bind_alone, ensure_free,
};
use tidegate_proxy::transport::tls::{CertificateWatcher, Termination};

/// How long a reload waits until the workers have closed the sockets of a removed listener.
const CLOSE_RETRIES: u32 = 50;
const CLOSE_PAUSE: Duration = Duration::from_millis(20);

/// The sockets that a worker serves.
pub(super) type Served = Vec<ServedSocket>;

/// A socket that a worker serves.
#[derive(Debug)]
pub(super) struct ServedSocket {
    pub(super) role: Role,
    pub(super) server: Server,
    pub(super) socket: Socket,
}

/// All listeners of a gateway.
#[derive(Debug)]
pub(super) struct Listeners {
    entries: Vec<Entry>,
    /// The admin socket, if there is one.
    admin: Vec<Arc<ListeningSocket>>,
    /// The drains of servers that a reload has removed or replaced.
    retired: Vec<DrainTrigger>,
    connections: GatewayConnections,
    /// Every socket once, for a successor.
    current: CurrentSockets,
}

/// An entry that the gateway listens on.
#[derive(Debug)]
struct Entry {
    /// See [`ListenEntry`].
    name: String,
    role: Role,
    listen: Listen,
    server: Server,
    tls: Option<Arc<Termination>>,
    drain: DrainTrigger,
    sockets: Vec<Arc<ListeningSocket>>,
}

/// The listeners of a changed configuration, which are open but not served yet.
#[derive(Debug)]
pub(super) struct ListenerPlan {
    entries: Vec<PlannedEntry>,
    max_connections: usize,
}

#[derive(Debug)]
enum PlannedEntry {
    /// The entry keeps its server. Only its caps and the mode of its file may change.
    Kept(Box<Listen>),
    /// The entry has a new server, on new sockets or on the sockets of the server that it replaces.
    New(Box<Entry>),
}

impl Listeners {
    /// Opens all listeners.
    pub(super) fn open(
        config: &Config,
        workers: usize,
        metrics: &Arc<Metrics>,
        mut inherited: InheritedSockets,
    ) -> Result<Self, GatewayStartError> {
        ensure_all_free(config, &inherited)?;
        let max_connections = descriptors::reserve(config, workers);
        let connections = GatewayConnections::new(max_connections, config.rules.addresses.clone(), Arc::clone(metrics));
        let mut entries = Vec::new();
        for entry in listen_entries(config) {
            let inherited = inherited.take(&entry.listen.address);
            let sockets = open(&entry.listen, workers, inherited)?;
            let tls = set_up_tls(&entry.listen)?;
            entries.push(Entry::new(entry, tls, sockets, &connections));
        }
        let mut admin = Vec::new();
        if let Some(address) = &config.admin {
            let failed = |cause| GatewayStartError::Bind { address: address.clone(), cause };
            admin = open_admin(address, inherited.take(address)).map_err(failed)?;
        }
        if let Some(address) = inherited.unclaimed() {
            return Err(GatewayStartError::Unclaimed { address });
        }
        let admin = admin.into_iter().map(Arc::new).collect();
        let (retired, current) = (Vec::new(), CurrentSockets::default());
        let all = Self { entries, admin, retired, connections, current };
        all.publish();
        Ok(all)
    }

    /// Returns the sockets of each worker.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub(super) fn distribute(&self, workers: usize) -> Result<Vec<Served>, GatewayStartError> {
        distribute(&self.entries.iter().collect::<Vec<_>>(), workers)
    }

    /// Returns the address of each entry with this role, with the port that the system chose for port 0.
    pub(super) fn addresses(&self, role: Role) -> Vec<ListenAddress> {
        self.entries.iter().filter(|entry| entry.role == role).filter_map(Entry::address).collect()
    }

    /// Returns a duplicate of the admin socket.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub(super) fn admin_socket(&self) -> io::Result<Option<Socket>> {
        self.admin.first().map(|listening| listening.socket.try_clone()).transpose()
    }

    /// Returns the sockets for a successor.
    pub(super) fn current(&self) -> &CurrentSockets {
        &self.current
    }

    /// Creates watchers for the certificate files of all entries. Skips configurations in `before`.
    pub(super) fn watchers(&self, before: &[Arc<Termination>], metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        let with_tls = self.entries.iter().filter_map(|entry| Some((entry, entry.tls.as_ref()?)));
        let new = with_tls.filter(|(_, tls)| !before.iter().any(|before| Arc::ptr_eq(before, tls)));
        let watcher = |(entry, tls): (&Entry, &Arc<Termination>)| {
            let interval = entry.listen.tls.as_ref().map_or(Duration::MAX, |tls| tls.check_interval);
            let user = format!("listener {}", entry.listen.address);
            CertificateWatcher::new(Arc::clone(tls) as _, &user, interval, Arc::clone(metrics))
        };
        new.map(watcher).collect()
    }

    /// Returns the TLS configurations in use.
    pub(super) fn terminations(&self) -> Vec<Arc<Termination>> {
        self.entries.iter().filter_map(|entry| entry.tls.clone()).collect()
    }

    /// Opens what a changed configuration needs. Changes nothing yet.
    pub(super) fn plan(&self, config: &Config, workers: usize) -> Result<ListenerPlan, GatewayStartError> {
        let mut entries = Vec::new();
        for new in listen_entries(config) {
            let listen = &new.listen;
            entries.push(match self.entries.iter().find(|entry| entry.name == new.name) {
                Some(entry) if entry.can_keep_server(listen) => PlannedEntry::Kept(Box::new(new.listen)),
                Some(entry) => {
                    let tls = if entry.has_same_tls(listen) { entry.tls.clone() } else { set_up_tls(listen)? };
                    let sockets = entry.sockets.clone();
                    PlannedEntry::New(Box::new(Entry::with_sockets(new, tls, sockets, &self.connections)))
                }
                None => {
                    self.ensure_free(&listen.address)?;
                    let sockets = open(listen, workers, Vec::new())?;
                    let tls = set_up_tls(listen)?;
                    PlannedEntry::New(Box::new(Entry::new(new, tls, sockets, &self.connections)))
                }
            });
        }
        Ok(ListenerPlan { entries, max_connections: descriptors::reserve(config, workers) })
    }

    /// Checks that no other process listens on an address. This gateway may listen on the port at another address.
    fn ensure_free(&self, address: &ListenAddress) -> Result<(), GatewayStartError> {
        let mut own = self.entries.iter().filter_map(|entry| entry.address()?.tcp());
        match address.tcp() {
            Some(tcp) if !own.any(|own| own.port() == tcp.port()) => {
                let mut result = ensure_free(tcp);
                // The workers may not have closed the sockets of a removed listener yet.
                for _ in 0..CLOSE_RETRIES {
                    if result.is_ok() || self.retired.is_empty() {
                        break;
                    }
                    std::thread::park_timeout(CLOSE_PAUSE);
                    result = ensure_free(tcp);
                }
                result.map_err(|cause| GatewayStartError::Bind { address: address.clone(), cause })
            }
            _ => Ok(()),
        }
    }

    /// Makes the planned listeners the current ones. Returns the servers that no entry uses any more.
    pub(super) fn apply(&mut self, plan: ListenerPlan, config: &Config) -> Retired {
        self.connections.update(plan.max_connections, config.rules.addresses.clone());
        let mut before = std::mem::take(&mut self.entries);
        let mut retired = Retired(Vec::new());
        for (ListenEntry { name, .. }, planned) in listen_entries(config).into_iter().zip(plan.entries) {
            let position = before.iter().position(|entry| entry.name == name);
            let existing = position.map(|position| before.swap_remove(position));
            match (planned, existing) {
                (PlannedEntry::Kept(listen), Some(entry)) => self.entries.push(entry.updated(*listen)),
                (PlannedEntry::Kept(_), None) => {}
                (PlannedEntry::New(entry), existing) => {
                    retired.0.extend(existing.map(|existing| (DrainReason::Replaced, existing.drain)));
                    self.entries.push(*entry);
                }
            }
        }
        retired.0.extend(before.into_iter().map(|entry| (DrainReason::Removed, entry.drain)));
        self.publish();
        retired
    }

    /// Stops servers. Their idle connections are closed, and running requests finish.
    pub(super) fn retire(&mut self, retired: Retired) {
        self.retired.retain(|drain| !drain.is_unobserved());
        for (reason, drain) in retired.0 {
            drain.start_without_deadline(reason);
            self.retired.push(drain);
        }
    }

    /// Closes all sockets, and drains all servers within `limit`.
    pub(super) fn drain(self, limit: Duration) {
        self.current.replace(Vec::new()); // Otherwise, clients could still connect.
        let Self { entries, retired, .. } = self;
        let drains = entries.into_iter().map(|entry| entry.drain).chain(retired);
        drains.for_each(|drain| drain.start(limit));
    }

    /// Publishes the sockets for a successor.
    fn publish(&self) {
        let entries = self.entries.iter().flat_map(|entry| &entry.sockets);
        self.current.replace(entries.chain(&self.admin).cloned().collect());
    }
}

/// Servers that no entry of the rule file uses any more.
#[derive(Debug)]
pub(super) struct Retired(Vec<(DrainReason, DrainTrigger)>);

// === impl ListenerPlan ===

impl ListenerPlan {
    /// Returns the new sockets and servers of each worker.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub(super) fn distribute(&self, workers: usize) -> Result<Vec<Served>, GatewayStartError> {
        let new = self.entries.iter().filter_map(|entry| match entry {
            PlannedEntry::New(entry) => Some(&**entry),
            PlannedEntry::Kept(_) => None,
        });
        distribute(&new.collect::<Vec<_>>(), workers)
    }
}

// === impl Entry ===

impl Entry {
    fn new(
        entry: ListenEntry,
        tls: Option<Arc<Termination>>,
        sockets: Vec<ListeningSocket>,
        connections: &GatewayConnections,
    ) -> Self {
        Self::with_sockets(entry, tls, sockets.into_iter().map(Arc::new).collect(), connections)
    }

    fn with_sockets(
        ListenEntry { name, role, listen }: ListenEntry,
        tls: Option<Arc<Termination>>,
        sockets: Vec<Arc<ListeningSocket>>,
        connections: &GatewayConnections,
    ) -> Self {
        let (drain, drained) = Drain::new();
        let server = Server::with_connections(connections, &listen, tls.clone(), drained, log_rejection);
        Self { name, role, listen, server, tls, drain, sockets }
    }

    /// Returns the address, with the port that the system chose for port 0.
    fn address(&self) -> Option<ListenAddress> {
        inherited::local_address(&self.sockets.first()?.socket)
    }

    /// Returns `true` if only the caps and the mode differ, which a running server can change.
    fn can_keep_server(&self, new: &Listen) -> bool {
        let Listen { mode, max_connections, max_connections_per_client, .. } = *new;
        Listen { mode, max_connections, max_connections_per_client, ..self.listen.clone() } == *new
    }

    fn has_same_tls(&self, new: &Listen) -> bool {
        self.listen.tls == new.tls && self.listen.http2 == new.http2
    }

    /// Applies the caps and the mode.
    fn updated(self, listen: Listen) -> Self {
        self.server.set_caps(&listen);
        if self.listen.mode != listen.mode {
            for file in self.sockets.iter().filter_map(|listening| listening.file.as_ref()) {
                if let Err(error) = file.change_mode(listen.mode) {
                    tracing::error!(path = %file.path().display(), %error, "cannot change the mode of a Unix socket");
                }
            }
        }
        Self { listen, ..self }
    }
}

/// Distributes the sockets of all entries. Every worker gets at least one socket of each entry, and every socket gets a
/// worker: the kernel assigns connections to all sockets.
fn distribute(entries: &[&Entry], workers: usize) -> Result<Vec<Served>, GatewayStartError> {
    let mut per_worker: Vec<Served> = (0..workers).map(|_| Vec::new()).collect();
    for Entry { role, listen, server, sockets, .. } in entries {
        for index in 0..workers.max(sockets.len()) {
            let failed = |cause| GatewayStartError::Bind { address: listen.address.clone(), cause };
            let socket = sockets[index % sockets.len()].socket.try_clone().map_err(failed)?;
            per_worker[index % workers].push(ServedSocket { role: *role, server: server.clone(), socket });
        }
    }
    Ok(per_worker)
}

/// Sets up TLS if the entry uses it.
fn set_up_tls(entry: &Listen) -> Result<Option<Arc<Termination>>, GatewayStartError> {
    let Some(settings) = &entry.tls else { return Ok(None) };
    let tls = Termination::new(settings, entry.http2).map_err(|error| GatewayStartError::Tls(Box::new(error)))?;
    Ok(Some(Arc::new(tls)))
}

/// Checks that no other process listens on the addresses of the rule file.
///
/// Checks all addresses before it opens the first one, because entries may share a port, such as `0.0.0.0` and `[::]`.
/// Skips ports of inherited sockets: the predecessor still listens there.
fn ensure_all_free(config: &Config, inherited: &InheritedSockets) -> Result<(), GatewayStartError> {
    let addresses = listen_entries(config).into_iter().map(|entry| entry.listen.address);
    let ports = addresses.filter_map(|address| address.tcp().map(|port| (address, port)));
    let mut to_check = ports.filter(|(_, port)| !inherited.has_port(port.port()));
    to_check
        .try_for_each(|(address, port)| ensure_free(port).map_err(|cause| GatewayStartError::Bind { address, cause }))
}

/// Opens the sockets of an entry.
fn open(
    entry: &Listen,
    workers: usize,
    inherited: Vec<ListeningSocket>,
) -> Result<Vec<ListeningSocket>, GatewayStartError> {
    let failed = |cause| GatewayStartError::Bind { address: entry.address.clone(), cause };
    listen(&entry.address, entry.mode, workers, inherited).map_err(failed)
}

/// Returns the inherited sockets, and new ones as needed for all workers to listen on `address`.
fn listen(
    address: &ListenAddress,
    mode: u32,
    workers: usize,
    mut inherited: Vec<ListeningSocket>,
) -> io::Result<Vec<ListeningSocket>> {
    match address {
        ListenAddress::Tcp(address) => {
            let sockets = inherited.into_iter().map(|listening| listening.socket).collect();
            let sockets = bind(*address, workers, sockets)?;
            return Ok(sockets.into_iter().map(ListeningSocket::without_file).collect());
        }
        ListenAddress::Unix(path) if inherited.is_empty() => inherited.push(socket_file::listen(path, mode)?),
        ListenAddress::Unix(_) => {
            let files = inherited.iter().filter_map(|listening| listening.file.as_ref());
            files.for_each(|file| file.request_mode(mode));
        }
    }
    Ok(inherited)
}

/// Opens the admin socket. A single socket is enough, without `SO_REUSEPORT`.
fn open_admin(address: &ListenAddress, inherited: Vec<ListeningSocket>) -> io::Result<Vec<ListeningSocket>> {
    match address {
        ListenAddress::Tcp(address) if inherited.is_empty() => {
            Ok(vec![ListeningSocket::without_file(bind_alone(*address)?)])
        }
        _ => listen(address, OWNER_ONLY, 1, inherited),
    }
}
