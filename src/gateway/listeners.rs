//! The sockets that clients and operators connect to: inherited, or opened here.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use socket2::Socket;

use super::inherited::{self, Inherited};
use super::socket_file::{self, Listening, OWNER_ALONE};
use super::{GatewayStartError, descriptors};
use crate::access;
use crate::config::{Config, Listen, ListenAddress};
use crate::metrics::Metrics;
use crate::server::{Drain, GatewayConnections, Server, bind, ensure_free};
use crate::tls::{CertificateWatcher, Termination};

/// All sockets of a gateway.
pub(super) struct Listeners {
    /// One for each entry of `listen`, with the ports that the system chose.
    pub(super) addresses: Vec<ListenAddress>,
    /// What each worker listens on.
    pub(super) of_workers: Vec<Vec<(Server, Socket)>>,
    pub(super) admin: Option<Socket>,
    /// Each of them once, for a successor.
    pub(super) sockets: Vec<Listening>,
    /// One for each entry that speaks TLS.
    pub(super) watches: Vec<CertificateWatcher>,
}

impl Listeners {
    pub(super) fn open(
        config: &Config,
        workers: usize,
        metrics: &Arc<Metrics>,
        drain: &Drain,
        mut inherited: Inherited,
    ) -> Result<Self, GatewayStartError> {
        are_free(config, &inherited)?;
        let places = descriptors::provide(config, workers);
        let connections = GatewayConnections::new(places, config.rules.addresses.clone(), Arc::clone(metrics));
        let of_workers = (0..workers).map(|_| Vec::new()).collect();
        let mut all = Self { addresses: Vec::new(), of_workers, admin: None, sockets: Vec::new(), watches: Vec::new() };
        for entry in &config.listen {
            let failed = |cause| GatewayStartError::Bind { address: entry.address.clone(), cause };
            let tls = all.speak_tls(entry, metrics)?;
            let server = Server::with_connections(&connections, entry, tls, drain.clone(), access::refused);
            let inherited = inherited.take(&entry.address);
            let sockets = listen(&entry.address, entry.mode, workers, inherited).map_err(failed)?;
            all.spread(&server, sockets).map_err(failed)?;
        }
        if let Some(address) = &config.admin {
            let failed = |cause| GatewayStartError::Bind { address: address.clone(), cause };
            let sockets = open_admin(address, inherited.take(address)).map_err(failed)?;
            all.admin = sockets.first().map(|listening| listening.socket.try_clone()).transpose().map_err(failed)?;
            all.sockets.extend(sockets);
        }
        inherited.unclaimed().map_or(Ok(all), |address| Err(GatewayStartError::Unclaimed { address }))
    }

    /// Sets TLS up, where an entry speaks it.
    fn speak_tls(
        &mut self,
        entry: &Listen,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Arc<Termination>>, GatewayStartError> {
        let Some(settings) = &entry.tls else { return Ok(None) };
        let tls = Arc::new(Termination::new(settings, entry.http2)?);
        let user = format!("listener {}", entry.address);
        self.watches.push(CertificateWatcher::new(
            Arc::clone(&tls) as _,
            &user,
            settings.check_interval,
            Arc::clone(metrics),
        ));
        Ok(Some(tls))
    }

    /// Gives each worker a socket of the same address, and no socket to nobody: the kernel gives connections to each of them.
    fn spread(&mut self, server: &Server, sockets: Vec<Listening>) -> io::Result<()> {
        self.addresses.extend(sockets.first().and_then(|listening| inherited::address(&listening.socket)));
        let workers = self.of_workers.len();
        for number in 0..workers.max(sockets.len()) {
            let socket = sockets[number % sockets.len()].socket.try_clone()?;
            self.of_workers[number % workers].push((server.clone(), socket));
        }
        self.sockets.extend(sockets);
        Ok(())
    }
}

/// Whether nobody else listens where clients are to connect. All are asked about before the first is opened: entries may share a
/// port, as `0.0.0.0` and `[::]` do. So does whoever handed sockets over, who still listens.
fn are_free(config: &Config, inherited: &Inherited) -> Result<(), GatewayStartError> {
    let addresses = config.listen.iter().map(|entry| &entry.address);
    let ports = addresses.filter_map(|address| Some((address, address.tcp()?)));
    let mut asked = ports.filter(|(_, port)| !inherited.has_port(port.port()));
    asked.try_for_each(|(address, port)| {
        ensure_free(port).map_err(|cause| GatewayStartError::Bind { address: address.clone(), cause })
    })
}

/// What is inherited, and what else is needed to listen at `address`; at least one.
fn listen(
    address: &ListenAddress,
    mode: u32,
    workers: usize,
    mut inherited: Vec<Listening>,
) -> io::Result<Vec<Listening>> {
    match address {
        ListenAddress::Tcp(address) => {
            let sockets = inherited.into_iter().map(|listening| listening.socket).collect();
            let sockets = bind(*address, workers, sockets)?;
            return Ok(sockets.into_iter().map(Listening::without_file).collect());
        }
        ListenAddress::Unix(path) if inherited.is_empty() => inherited.push(socket_file::listen(path, mode)?),
        ListenAddress::Unix(_) => {
            let files = inherited.iter().filter_map(|listening| listening.file.as_ref());
            files.for_each(|file| file.request_mode(mode));
        }
    }
    Ok(inherited)
}

/// Operators need one socket, which shares its port with nobody.
fn open_admin(address: &ListenAddress, inherited: Vec<Listening>) -> io::Result<Vec<Listening>> {
    match address {
        ListenAddress::Tcp(address) if inherited.is_empty() => {
            Ok(vec![Listening::without_file(TcpListener::bind(address)?.into())])
        }
        _ => listen(address, OWNER_ALONE, 1, inherited),
    }
}
