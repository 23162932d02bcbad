//! The caps on connections, and the answer to connections beyond them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::crowd::{Crowd, TooMany};
use super::peer::ConnectionPeer;
use crate::client::AddressRules;
use crate::config::Listen;
use crate::metrics::Metrics;
use crate::transport::Transport;

/// How long, and for how many at a time, a refused connection is kept until its client has taken the answer. Closed
/// at once, it would be reset by the request that is on its way, and the answer lost.
const LINGER: Duration = Duration::from_secs(1);
pub(crate) const LINGERING: usize = 64;

/// The slots of all listeners together.
#[derive(Clone, Debug)]
pub(crate) struct Capacity(Arc<Whole>);

#[derive(Debug)]
struct Whole {
    max: usize,
    taken: AtomicUsize,
    lingering: AtomicUsize,
    addresses: AddressRules,
    metrics: Arc<Metrics>,
}

/// The slots of one listener, shared by all workers.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<ConnectionCounts>);

#[derive(Debug)]
struct ConnectionCounts {
    whole: Capacity,
    max: usize,
    taken: AtomicUsize,
    crowd: Crowd,
}

/// A connection's slot. On drop, it is free again.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<ConnectionCounts>,
    /// Shorter than a `SocketAddr`: every idle connection has one.
    peer: (IpAddr, u16),
    /// Whether it counts as a connection of its peer's.
    is_counted: bool,
    /// Whom a proxy has told of.
    told: OnceLock<Box<Told>>,
    /// A proxy's header named no client, so nothing is known of the fields that the proxy forwards.
    lacks_client: AtomicBool,
    is_free: AtomicBool,
}

/// Who is behind a proxy.
#[derive(Debug)]
struct Told {
    peer: SocketAddr,
    client: Option<IpNet>,
}

/// Which cap was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Gateway,
    Listener,
    Client,
}

// === impl Capacity ===

impl Capacity {
    /// This many slots; `addresses` says which connections belong to one client.
    pub(crate) fn new(max: usize, addresses: AddressRules, metrics: Arc<Metrics>) -> Self {
        let (taken, lingering) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Whole { max, taken, lingering, addresses, metrics }))
    }

    /// What they are counted in.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }
}

// === impl Slots ===

impl Slots {
    pub(crate) fn new(listen: &Listen, whole: &Capacity) -> Self {
        let crowd = Crowd::new(listen.max_connections_per_client, whole.0.addresses.clone());
        let (whole, max, taken) = (whole.clone(), listen.max_connections, AtomicUsize::new(0));
        Self(Arc::new(ConnectionCounts { whole, max, taken, crowd }))
    }

    /// A place for a connection from `peer`, if there is one. A client that has all of its own is told so first: others do not
    /// make room for it.
    pub(crate) fn take(&self, peer: SocketAddr) -> Result<Slot, Full> {
        let ConnectionCounts { whole: Capacity(whole), max, taken, crowd } = &*self.0;
        let client = crowd.enter(peer.ip()).map_err(|TooMany| Full::Client)?;
        let full = if count_up(&whole.taken, whole.max).is_none() {
            Full::Gateway
        } else if count_up(taken, *max).is_none() {
            whole.taken.fetch_sub(1, Ordering::Relaxed);
            Full::Listener
        } else {
            whole.metrics.connection_opened();
            let peer = (peer.ip(), peer.port());
            let (told, lacks_client, is_free) = (OnceLock::new(), AtomicBool::new(false), AtomicBool::new(false));
            let (shared, is_counted) = (self.0.clone(), client.is_some());
            return Ok(Slot { shared, peer, is_counted, told, lacks_client, is_free });
        };
        client.iter().for_each(|client| crowd.leave(client));
        Err(full)
    }

    /// Closes a connection to which nothing can be said.
    pub(crate) fn refuse_silently(&self, stream: Transport, full: Full) {
        self.count_refused(full);
        drop(stream);
    }

    fn count_refused(&self, full: Full) {
        self.0.whole.metrics().connection_refused();
        self.0.whole.metrics().rejected(full.cause());
    }

    /// Whether a peer may tell who has connected to it.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.0.whole.0.addresses.trusts(peer)
    }

    /// Refuses a connection, with a 503 if the socket takes it.
    pub(crate) fn refuse(&self, mut stream: Transport, full: Full) {
        let whole = &self.0.whole.0;
        self.count_refused(full);
        // A fresh socket has room for it; if it has not, the client goes without.
        _ = Pin::new(&mut stream).poll_write(&mut Context::from_waker(Waker::noop()), full.answer().as_bytes());
        if count_up(&whole.lingering, LINGERING).is_some() {
            let whole = whole.clone();
            tokio::spawn(async move {
                _ = timeout(LINGER, wait_for_end(stream)).await;
                whole.lingering.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

/// Counts up unless `max` has been reached.
fn count_up(counter: &AtomicUsize, max: usize) -> Option<usize> {
    let up = |count| (count < max).then_some(count + 1);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, up).ok()
}

/// Discards what the client sends until it closes.
pub(super) async fn wait_for_end(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.shutdown().await?;
    let mut scratch = [0; 4096];
    while stream.read(&mut scratch).await? > 0 {}
    Ok(())
}

// === impl Full ===

impl Full {
    /// The word by which those beyond it are counted.
    pub(super) fn cause(self) -> &'static str {
        match self {
            Self::Gateway => "connections",
            Self::Listener => "listener_connections",
            Self::Client => "client_connections",
        }
    }

    /// It is for others to know which of the caps was reached, unless it is the client's own.
    fn answer(self) -> String {
        let detail = if self == Self::Client { "too many connections from you" } else { "too many connections" };
        let body = format!(
            r#"{{"detail":"{detail}","status":503,"title":"Service Unavailable","type":"about:blank"}}{}"#,
            "\n"
        );
        format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

// === impl Slot ===

impl Slot {
    /// Who connected, be it to a proxy that told of it.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.told.get().map_or_else(|| self.peer.into(), |told| told.peer)
    }

    /// The other end, for the requests on the connection.
    pub(super) fn connection_peer(&self) -> ConnectionPeer {
        ConnectionPeer { address: self.peer(), is_client: self.lacks_client.load(Ordering::Relaxed) }
    }

    /// The proxy's header names no client: the proxy itself counts as the client.
    pub(super) fn mark_without_client(&self) {
        self.lacks_client.store(true, Ordering::Relaxed);
    }

    /// Whose connection has it, if it counts as somebody's.
    pub(crate) fn client(&self) -> Option<IpNet> {
        let of_peer = || self.is_counted.then(|| self.shared.whole.0.addresses.network(self.peer.0.to_canonical()));
        self.told.get().map_or_else(of_peer, |told| told.client)
    }

    /// A proxy, which is nobody's client, tells who has connected to it. That client has its own bound.
    pub(super) fn belongs_to(&self, peer: SocketAddr) -> Result<(), Full> {
        let crowd = &self.shared.crowd;
        let client = crowd.enter(peer.ip()).map_err(|TooMany| Full::Client)?;
        if let Err(told) = self.told.set(Box::new(Told { peer, client })) {
            told.client.iter().for_each(|client| crowd.leave(client));
        }
        Ok(())
    }

    /// Refuses the connection that has it.
    pub(super) fn refuse(&self, stream: Transport, full: Full) {
        Slots(self.shared.clone()).refuse(stream, full);
    }

    /// Closes the connection that has it, to which nothing can be said.
    pub(super) fn refuse_silently(&self, stream: Transport, full: Full) {
        Slots(self.shared.clone()).refuse_silently(stream, full);
    }

    /// Gives it back before the connection is gone: that is going to be soon.
    pub(crate) fn give_back(&self) {
        if self.is_free.swap(true, Ordering::Relaxed) {
            return;
        }
        let ConnectionCounts { whole: Capacity(whole), taken, crowd, .. } = &*self.shared;
        whole.taken.fetch_sub(1, Ordering::Relaxed);
        taken.fetch_sub(1, Ordering::Relaxed);
        if let Some(client) = self.client() {
            crowd.leave(&client);
        }
        whole.metrics.connection_closed();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}
