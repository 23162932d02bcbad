//! The listening sockets of a gateway, for clients and operators: inherited, or opened here.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use socket2::Socket;

use super::inherited::{self, InheritedSockets};
use super::socket_file::{self, ListeningSocket, OWNER_ONLY};
use super::{GatewayStartError, descriptors};
use crate::access;
use crate::config::{Config, Listen, ListenAddress};
use crate::metrics::Metrics;
use crate::server::{Drain, GatewayConnections, Server, bind, ensure_free};
use crate::tls::{CertificateWatcher, Termination};

/// All listening sockets of a gateway.
pub(super) struct Listeners {
    /// The address of each entry of `listen`, with the port that the system chose for port 0.
    pub(super) addresses: Vec<ListenAddress>,
    /// The sockets of each worker.
    pub(super) per_worker: Vec<Vec<(Server, Socket)>>,
    pub(super) admin: Option<Socket>,
    /// Every socket once, for a successor.
    pub(super) sockets: Vec<ListeningSocket>,
    /// A watcher for each entry with TLS.
    pub(super) watchers: Vec<CertificateWatcher>,
}

impl Listeners {
    pub(super) fn open(
        config: &Config,
        workers: usize,
        metrics: &Arc<Metrics>,
        drain: &Drain,
        mut inherited: InheritedSockets,
    ) -> Result<Self, GatewayStartError> {
        ensure_all_free(config, &inherited)?;
        let max_connections = descriptors::reserve(config, workers);
        let connections = GatewayConnections::new(max_connections, config.rules.addresses.clone(), Arc::clone(metrics));
        let per_worker = (0..workers).map(|_| Vec::new()).collect();
        let mut all =
            Self { addresses: Vec::new(), per_worker, admin: None, sockets: Vec::new(), watchers: Vec::new() };
        for entry in &config.listen {
            let failed = |cause| GatewayStartError::Bind { address: entry.address.clone(), cause };
            let tls = all.set_up_tls(entry, metrics)?;
            let server = Server::with_connections(&connections, entry, tls, drain.clone(), access::log_rejection);
            let inherited = inherited.take(&entry.address);
            let sockets = listen(&entry.address, entry.mode, workers, inherited).map_err(failed)?;
            all.distribute(&server, sockets).map_err(failed)?;
        }
        if let Some(address) = &config.admin {
            let failed = |cause| GatewayStartError::Bind { address: address.clone(), cause };
            let sockets = open_admin(address, inherited.take(address)).map_err(failed)?;
            all.admin = sockets.first().map(|listening| listening.socket.try_clone()).transpose().map_err(failed)?;
            all.sockets.extend(sockets);
        }
        inherited.unclaimed().map_or(Ok(all), |address| Err(GatewayStartError::Unclaimed { address }))
    }

    /// Sets up TLS if the entry uses it.
    fn set_up_tls(
        &mut self,
        entry: &Listen,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Arc<Termination>>, GatewayStartError> {
        let Some(settings) = &entry.tls else { return Ok(None) };
        let tls = Termination::new(settings, entry.http2).map_err(|error| GatewayStartError::Tls(Box::new(error)))?;
        let tls = Arc::new(tls);
        let user = format!("listener {}", entry.address);
        self.watchers.push(CertificateWatcher::new(
            Arc::clone(&tls) as _,
            &user,
            settings.check_interval,
            Arc::clone(metrics),
        ));
        Ok(Some(tls))
    }

    /// Distributes the sockets of one address. Every worker gets at least one, and every socket gets a worker: the
    /// kernel assigns connections to all sockets.
    fn distribute(&mut self, server: &Server, sockets: Vec<ListeningSocket>) -> io::Result<()> {
        self.addresses.extend(sockets.first().and_then(|listening| inherited::local_address(&listening.socket)));
        let workers = self.per_worker.len();
        for index in 0..workers.max(sockets.len()) {
            let socket = sockets[index % sockets.len()].socket.try_clone()?;
            self.per_worker[index % workers].push((server.clone(), socket));
        }
        self.sockets.extend(sockets);
        Ok(())
    }
}

/// Checks that no other process listens on the addresses of the rule file.
///
/// Checks all addresses before it opens the first one, because entries may share a port, such as `0.0.0.0` and `[::]`.
/// Skips ports of inherited sockets: the predecessor still listens there.
fn ensure_all_free(config: &Config, inherited: &InheritedSockets) -> Result<(), GatewayStartError> {
    let addresses = config.listen.iter().map(|entry| &entry.address);
    let ports = addresses.filter_map(|address| Some((address, address.tcp()?)));
    let mut to_check = ports.filter(|(_, port)| !inherited.has_port(port.port()));
    to_check.try_for_each(|(address, port)| {
        ensure_free(port).map_err(|cause| GatewayStartError::Bind { address: address.clone(), cause })
    })
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
            Ok(vec![ListeningSocket::without_file(TcpListener::bind(address)?.into())])
        }
        _ => listen(address, OWNER_ONLY, 1, inherited),
    }
}
