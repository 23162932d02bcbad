//! The sockets that clients and operators connect to: inherited, or opened here.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use socket2::Socket;

use super::inherited::Inherited;
use super::{StartError, descriptors};
use crate::access;
use crate::config::{Config, Listen};
use crate::metrics::Metrics;
use crate::server::{Capacity, Drain, Server, bind};
use crate::tls::{Termination, Watch};

/// All sockets of a gateway.
pub(super) struct Listeners {
    /// One for each entry of `listen`, with the ports that the system chose.
    pub(super) addresses: Vec<SocketAddr>,
    /// What each worker listens on.
    pub(super) of_workers: Vec<Vec<(Server, TcpListener)>>,
    pub(super) admin: Option<TcpListener>,
    /// Each of them once, for a successor.
    pub(super) sockets: Vec<Socket>,
    /// One for each entry that speaks TLS.
    pub(super) watches: Vec<Watch>,
}

impl Listeners {
    pub(super) fn open(
        config: &Config,
        workers: usize,
        metrics: &Arc<Metrics>,
        drain: &Drain,
        mut inherited: Inherited,
    ) -> Result<Self, StartError> {
        let places = descriptors::provide(config, workers);
        let capacity = Capacity::new(places, config.rules.addresses.clone(), Arc::clone(metrics));
        let of_workers = (0..workers).map(|_| Vec::new()).collect();
        let mut all = Self { addresses: Vec::new(), of_workers, admin: None, sockets: Vec::new(), watches: Vec::new() };
        for entry in &config.listen {
            let failed = |cause| StartError::Bind { address: entry.address, cause };
            let tls = all.speak_tls(entry, metrics)?;
            let server = Server::within(&capacity, entry, tls, drain.clone(), access::refused);
            let sockets = bind(entry.address, workers, inherited.take(entry.address)).map_err(failed)?;
            all.spread(&server, sockets).map_err(failed)?;
        }
        if let Some(address) = config.admin {
            let failed = |cause| StartError::Bind { address, cause };
            all.open_admin(address, inherited.take(address)).map_err(failed)?;
        }
        inherited.unclaimed().map_or(Ok(all), |address| Err(StartError::Unclaimed { address }))
    }

    /// Sets TLS up, where an entry speaks it.
    fn speak_tls(&mut self, entry: &Listen, metrics: &Arc<Metrics>) -> Result<Option<Arc<Termination>>, StartError> {
        let Some(settings) = &entry.tls else { return Ok(None) };
        let (tls, shown) = Termination::new(settings, entry.http2)?;
        let tls = Arc::new(tls);
        self.watches.push(Watch::new(Arc::clone(&tls), shown, Arc::clone(metrics)));
        Ok(Some(tls))
    }

    /// Gives each worker a socket of the same address, and no socket to nobody: the kernel gives connections to each of them.
    fn spread(&mut self, server: &Server, sockets: Vec<Socket>) -> io::Result<()> {
        self.addresses.extend(sockets.first().map(address).transpose()?);
        let workers = self.of_workers.len();
        for number in 0..workers.max(sockets.len()) {
            let socket = sockets[number % sockets.len()].try_clone()?;
            self.of_workers[number % workers].push((server.clone(), socket.into()));
        }
        self.sockets.extend(sockets);
        Ok(())
    }

    fn open_admin(&mut self, address: SocketAddr, inherited: Vec<Socket>) -> io::Result<()> {
        let socket = match inherited.into_iter().next() {
            Some(socket) => socket,
            None => TcpListener::bind(address)?.into(),
        };
        self.admin = Some(socket.try_clone()?.into());
        self.sockets.push(socket);
        Ok(())
    }
}

fn address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}
