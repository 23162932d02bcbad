//! The slots of connections, bounded by the caps of the gateway, of a listener, and of a client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::client_connections::{ClientConnections, ClientLimitReached};
use super::connection_cap::ConnectionCap;
use super::peer::ConnectionPeer;
use crate::transport::Transport;
use tidegate_config::Listen;
use tidegate_metrics::Metrics;
use tidegate_rules::client::AddressRules;

/// How long a rejected connection stays open so that its client can read the response, and how many may be open at a
/// time. If the gateway closed it at once, the client's request would cause a reset, and the response would be lost.
const LINGER: Duration = Duration::from_secs(1);
pub(crate) const MAX_LINGERING: usize = 64;

/// The connections of all listeners together.
#[derive(Clone, Debug)]
pub struct GatewayConnections(Arc<GatewayCounts>);

#[derive(Debug)]
struct GatewayCounts {
    max: AtomicUsize,
    open: AtomicUsize,
    lingering: AtomicUsize,
    addresses: ArcSwap<AddressRules>,
    metrics: Arc<Metrics>,
}

/// The connections of one listener, shared by all workers.
#[derive(Clone, Debug)]
pub(crate) struct ListenerConnections(Arc<ListenerCounts>);

#[derive(Debug)]
struct ListenerCounts {
    gateway: GatewayConnections,
    max: AtomicUsize,
    open: AtomicUsize,
    client_connections: ClientConnections,
}

/// A connection's slot. It is released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    shared: Arc<ListenerCounts>,
    /// Smaller than a `SocketAddr`: every idle connection has one.
    peer: (IpAddr, u16),
    /// The length of the prefix that identifies the peer as a client, if the connection is counted for its peer. A
    /// trusted proxy is not counted.
    client_prefix: Option<u8>,
    /// The client that a PROXY protocol header named. The connection is then counted only for this client.
    proxied_client: OnceLock<Box<ProxiedClient>>,
    /// The PROXY protocol header named no client, so the proxy's forwarded fields are not trusted.
    has_no_client: AtomicBool,
    is_released: AtomicBool,
}

/// The client behind a PROXY protocol peer.
#[derive(Debug)]
struct ProxiedClient {
    peer: SocketAddr,
    over_tls: bool,
    client: Option<IpNet>,
}

// === impl GatewayConnections ===

impl GatewayConnections {
    /// Allows up to `max` connections. `addresses` defines which addresses belong to one client.
    pub fn new(max: usize, addresses: AddressRules, metrics: Arc<Metrics>) -> Self {
        let (open, lingering) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (max, addresses) = (AtomicUsize::new(max), ArcSwap::from_pointee(addresses));
        Self(Arc::new(GatewayCounts { max, open, lingering, addresses, metrics }))
    }

    /// Applies the cap and the client addresses of changed rules. Open connections stay open.
    pub fn update(&self, max: usize, addresses: AddressRules) {
        self.0.max.store(max, Ordering::Relaxed);
        self.0.addresses.store(Arc::new(addresses));
    }

    /// Returns the metrics in which connections are counted.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }
}

// === impl ListenerConnections ===

impl ListenerConnections {
    pub(crate) fn new(listen: &Listen, gateway: &GatewayConnections) -> Self {
        let client_connections = ClientConnections::new(listen.max_connections_per_client);
        let (gateway, max, open) = (gateway.clone(), AtomicUsize::new(listen.max_connections), AtomicUsize::new(0));
        Self(Arc::new(ListenerCounts { gateway, max, open, client_connections }))
    }

    /// Applies the caps of a changed entry of `listen:`. Open connections stay open.
    pub(super) fn set_caps(&self, listen: &Listen) {
        self.0.max.store(listen.max_connections, Ordering::Relaxed);
        self.0.client_connections.set_max_per_client(listen.max_connections_per_client);
    }

    /// Acquires a slot for a connection from `peer`. Checks the client's cap first: no other connection is evicted for
    /// a client that has reached it.
    pub(crate) fn acquire(&self, peer: SocketAddr) -> Result<ConnectionSlot, ConnectionCap> {
        let ListenerCounts { gateway: GatewayConnections(gateway), max, open, client_connections } = &*self.0;
        let client = client_connections.add(peer.ip(), &gateway.addresses.load());
        let client = client.map_err(|ClientLimitReached| ConnectionCap::Client)?;
        let cap = if increment_below(&gateway.open, gateway.max.load(Ordering::Relaxed)).is_none() {
            ConnectionCap::Gateway
        } else if increment_below(open, max.load(Ordering::Relaxed)).is_none() {
            gateway.open.fetch_sub(1, Ordering::Relaxed);
            ConnectionCap::Listener
        } else {
            gateway.metrics.connection_opened();
            let peer = (peer.ip(), peer.port());
            return Ok(ConnectionSlot {
                shared: Arc::clone(&self.0),
                peer,
                client_prefix: client.map(|client| client.prefix_len()),
                proxied_client: OnceLock::new(),
                has_no_client: AtomicBool::new(false),
                is_released: AtomicBool::new(false),
            });
        };
        client.iter().for_each(|client| client_connections.remove(client));
        Err(cap)
    }

    /// Closes a connection without a response.
    pub(crate) fn reject_silently(&self, stream: Transport, cap: ConnectionCap) {
        self.count_rejected(cap);
        drop(stream);
    }

    fn count_rejected(&self, cap: ConnectionCap) {
        self.0.gateway.metrics().connection_refused();
        self.0.gateway.metrics().rejected(cap.cause());
    }

    /// Returns `true` if the peer is a trusted proxy.
    pub(crate) fn is_trusted_proxy(&self, peer: IpAddr) -> bool {
        self.0.gateway.0.addresses.load().trusts(peer)
    }

    /// Rejects a connection with status 503, if the socket accepts the response at once.
    pub(crate) fn reject(&self, mut stream: Transport, cap: ConnectionCap) {
        let gateway = &self.0.gateway.0;
        self.count_rejected(cap);
        // The send buffer of a new socket has room for the response. Otherwise the client gets none.
        _ = Pin::new(&mut stream).poll_write(&mut Context::from_waker(Waker::noop()), cap.response().as_bytes());
        if increment_below(&gateway.lingering, MAX_LINGERING).is_some() {
            let gateway = gateway.clone();
            tokio::spawn(async move {
                _ = timeout(LINGER, wait_for_close(stream)).await;
                gateway.lingering.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

/// Increments the counter unless it has reached `max`.
fn increment_below(counter: &AtomicUsize, max: usize) -> Option<usize> {
    let up = |count| (count < max).then_some(count + 1);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, up).ok()
}

/// Shuts down writing, and discards what the client sends until it closes the connection.
pub(super) async fn wait_for_close(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.shutdown().await?;
    let mut scratch = [0; 4096];
    while stream.read(&mut scratch).await? > 0 {}
    Ok(())
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Returns the client's address: the peer's, or the one in the PROXY protocol header.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.proxied_client.get().map_or_else(|| self.peer.into(), |proxied| proxied.peer)
    }

    /// Returns the peer address that requests on the connection carry.
    pub(super) fn connection_peer(&self) -> ConnectionPeer {
        ConnectionPeer {
            address: self.peer(),
            is_client: self.has_no_client.load(Ordering::Relaxed),
            over_tls: self.proxied_client.get().is_some_and(|proxied| proxied.over_tls),
        }
    }

    /// Records that the PROXY protocol header names no client, so the proxy itself counts as the client.
    pub(super) fn set_no_client(&self) {
        self.has_no_client.store(true, Ordering::Relaxed);
    }

    /// Returns the client that the connection is counted for. Returns `None` for a trusted proxy.
    pub(crate) fn client(&self) -> Option<IpNet> {
        self.proxied_client.get().map_or_else(|| self.peer_client(), |proxied| proxied.client)
    }

    /// Returns the client that the connection was counted for when it was accepted.
    fn peer_client(&self) -> Option<IpNet> {
        IpNet::new(self.peer.0.to_canonical(), self.client_prefix?).ok().map(|network| network.trunc())
    }

    /// Returns the number of connections of a client on this listener.
    pub(crate) fn count_of(&self, client: &IpNet) -> usize {
        self.shared.client_connections.count(client)
    }

    /// Counts the connection for the client that a PROXY protocol header named, if that client has not reached its
    /// cap.
    pub(super) fn assign_client(&self, peer: SocketAddr, over_tls: bool) -> Result<(), ConnectionCap> {
        let client_connections = &self.shared.client_connections;
        let client = client_connections.add(peer.ip(), &self.shared.gateway.0.addresses.load());
        let client = client.map_err(|ClientLimitReached| ConnectionCap::Client)?;
        let counted_before = match self.proxied_client.set(Box::new(ProxiedClient { peer, over_tls, client })) {
            // A reload during the acceptance of the connection can change whether its peer is a trusted proxy.
            Ok(()) => self.peer_client(),
            Err(second) => second.client,
        };
        counted_before.iter().for_each(|client| client_connections.remove(client));
        Ok(())
    }

    /// Rejects the connection of this slot with status 503.
    pub(super) fn reject(&self, stream: Transport, cap: ConnectionCap) {
        ListenerConnections(self.shared.clone()).reject(stream, cap);
    }

    /// Closes the connection of this slot without a response.
    pub(super) fn reject_silently(&self, stream: Transport, cap: ConnectionCap) {
        ListenerConnections(self.shared.clone()).reject_silently(stream, cap);
    }

    /// Releases the slot before the connection is closed, which follows soon.
    pub(crate) fn release(&self) {
        if self.is_released.swap(true, Ordering::Relaxed) {
            return;
        }
        let ListenerCounts { gateway: GatewayConnections(gateway), open, client_connections, .. } = &*self.shared;
        gateway.open.fetch_sub(1, Ordering::Relaxed);
        open.fetch_sub(1, Ordering::Relaxed);
        if let Some(client) = self.client() {
            client_connections.remove(&client);
        }
        gateway.metrics.connection_closed();
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.release();
    }
}
