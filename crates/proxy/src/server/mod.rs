//! Accepts connections and serves the requests on them, until the server drains.
//!
//! Every worker runs [`Server::serve`] on its own listeners (see [`bind()`]). Clones of a [`Server`] share its
//! connection cap.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use socket2::Socket;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::Service;

mod acceptor;
mod activity;
mod bind;
mod client_connections;
mod connection;
mod connection_cap;
mod connection_slots;
mod drain;
mod driver;
mod handshake;
mod handshake_limit;
mod head;
mod http1;
mod http2;
mod listener;
mod meter;
mod metered_socket;
mod open_connections;
mod peer;
mod precedence;
mod protocol;
pub(crate) mod proxy_protocol;
mod rank;
mod rejection;
mod scheme;
mod socket;
mod socket_options;
#[cfg(test)]
pub(crate) mod testing;
mod transfer_rate;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use bind::bind_one;
pub use bind::{bind, bind_alone, ensure_free};
pub use connection_slots::GatewayConnections;
pub use drain::{Drain, DrainReason, DrainTrigger};
pub use listener::Listener;
pub use precedence::Precedence;
pub use rejection::Rejection;

use crate::transport::tls::Termination;
use crate::transport::{BodyData, Transport};
use crate::upstream::RequestBody;
use acceptor::Acceptor;
use activity::Activity;
use connection_cap::ConnectionCap;
use connection_slots::{ConnectionSlot, ListenerConnections};
use handshake_limit::HandshakeLimit;
use open_connections::OpenConnections;
use tidegate_config::Listen;
use tidegate_metrics::Metrics;
#[cfg(test)]
use tidegate_rules::client::AddressRules;
use tidegate_rules::evaluation::HeadLimits;
use tidegate_rules::request::facts::ListenerName;
use transfer_rate::MinRate;

/// How many connections are evicted for a new one: another worker may take a slot that becomes free.
const MAX_EVICTIONS: usize = 3;

/// An infallible Tower service. Each request has the client's address in its extensions, as a
/// [`Peer`](tidegate_layer::layer::Peer).
pub trait HttpService: Clone + Send + 'static {
    /// The response body.
    type Body: Body<Data: Into<BodyData>, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;
    /// The future of a response.
    type Future: Future<Output = Result<Response<Self::Body>, Infallible>> + Send + 'static;

    /// See [`Service::poll_ready`].
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// See [`Service::call`].
    fn call(&mut self, request: Request<RequestBody>) -> Self::Future;
}

/// One entry of `listen:`, ready to serve.
#[derive(Clone, Debug)]
pub struct Server {
    context: Arc<ServerContext>,
    connections: ListenerConnections,
}

/// Settings and handles that all connections of a server share.
#[derive(Debug)]
pub(crate) struct ServerContext {
    /// The name of the listener, if it has one.
    pub(crate) name: Option<ListenerName>,
    /// Whether clients connect through proxies that send a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
    /// Whether the forwarded fields of a proxy are trusted if its header names no client.
    pub(crate) trust_unknown: bool,
    /// TLS, if the listener uses it.
    pub(crate) tls: Option<Arc<Termination>>,
    /// Limits TLS handshakes, if the listener has TLS and a rate.
    pub(crate) handshake_limit: Option<HandshakeLimit>,
    /// Whether the listener accepts HTTP/2 in addition to HTTP/1.
    pub(crate) http2: bool,
    pub(crate) limits: ConnectionLimits,
    pub(crate) drain: Drain,
    pub(crate) metrics: Arc<Metrics>,
    /// Called for every response that the service did not make.
    pub(crate) on_rejection: fn(&Rejection<'_>),
}

/// Timeouts and limits of one client connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    /// The minimum rate at which clients must send and read bodies.
    pub(crate) body: MinRate,
    /// The maximum number of requests on one connection.
    pub(crate) max_requests: u32,
    /// The maximum number of concurrent streams on an HTTP/2 connection.
    pub(crate) max_streams: u32,
    /// Limits on the request head.
    pub(crate) head: HeadLimits,
}

// === impl Server ===

impl Server {
    /// Creates a server for an entry of `listen:` that stops when `drain` is triggered, with a connection cap of its
    /// own.
    #[cfg(test)]
    pub(crate) fn new(listen: &Listen, metrics: Arc<Metrics>, drain: Drain) -> Self {
        Self::with_connections(
            &GatewayConnections::new(usize::MAX, AddressRules::default(), metrics),
            listen,
            None,
            drain,
            |_| {},
        )
    }

    /// Creates a server for an entry of `listen:` that stops when `drain` is triggered. It shares the gateway's
    /// connection cap, and uses TLS if given.
    pub fn with_connections(
        gateway: &GatewayConnections,
        listen: &Listen,
        tls: Option<Arc<Termination>>,
        drain: Drain,
        on_rejection: fn(&Rejection<'_>),
    ) -> Self {
        let (limits, http2) = (ConnectionLimits::new(listen), listen.http2);
        let (proxy_protocol, trust_unknown) = (listen.proxy_protocol, listen.trust_unknown);
        let metrics = Arc::clone(gateway.metrics());
        let handshake_limit = listen.tls.as_ref().and_then(|tls| HandshakeLimit::new(tls.max_handshake_rate));
        let context = ServerContext {
            name: listen.name.clone().map(ListenerName),
            proxy_protocol,
            trust_unknown,
            tls,
            handshake_limit,
            http2,
            limits,
            drain,
            metrics,
            on_rejection,
        };
        Self { context: Arc::new(context), connections: ListenerConnections::new(listen, gateway) }
    }

    /// Applies the connection caps of a changed entry of `listen:`.
    pub fn set_caps(&self, listen: &Listen) {
        self.connections.set_caps(listen);
    }

    /// Serves connections on a listening socket. Returns when all connections have drained, or at the drain's
    /// deadline. If the task that accepts panics, starts it again: no other socket would receive the connections that
    /// the kernel assigns to this one.
    ///
    /// # Errors
    /// The listener cannot be used. After a failure to accept, the server retries.
    pub async fn serve<S: HttpService>(self, socket: impl Into<Socket>, service: S) -> io::Result<()> {
        let listener = Listener::new(socket.into())?;
        listener.configure(self.context.limits.body.timeout);
        let mut listener = Some(Arc::new(listener));
        while let Some(open) = &listener {
            let mut serving = JoinSet::new();
            serving.spawn(self.clone().accept(Arc::clone(open), service.clone()));
            let ended = tokio::select! {
                biased;
                ended = serving.join_next() => ended,
                () = self.context.drain.started() => {
                    listener = None; // closed, so that the kernel accepts no more connections
                    serving.join_next().await
                }
            };
            match ended {
                Some(Err(ended)) if ended.is_panic() => Metrics::panicked(),
                Some(Err(ended)) => return Err(io::Error::other(ended)),
                Some(Ok(())) | None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Accepts connections until the drain, then waits until they are closed.
    async fn accept<S: HttpService>(self, listener: Arc<Listener>, service: S) {
        let mut acceptor = Acceptor::new(listener, Arc::clone(&self.context.metrics));
        let mut open = OpenConnections::default();
        loop {
            tokio::select! {
                biased;
                () = self.context.drain.started() => break,
                (stream, peer) = acceptor.accept() => self.start_connection(stream, peer, &service, &mut open),
                Some(()) = open.join_next() => {}
            }
        }
        // Clients that connected before the drain are in the kernel's queue, and are still served. After a reload, the
        // server that replaces this one accepts them, and keeps their connections open.
        if self.context.drain.reason() != Some(DrainReason::Replaced) {
            while let Some((stream, peer)) = acceptor.accept_queued() {
                self.start_connection(stream, peer, &service, &mut open);
            }
        }
        drop(acceptor);
        tokio::task::yield_now().await; // read requests that have already arrived
        open.close_idle();
        self.wait_for_connections(open).await;
    }

    fn start_connection<S: HttpService>(
        &self,
        stream: Transport,
        mut peer: SocketAddr,
        service: &S,
        open: &mut OpenConnections,
    ) {
        peer.set_ip(peer.ip().to_canonical()); // one canonical form for logs and metrics
        if self.context.proxy_protocol && !self.connections.is_trusted_proxy(peer.ip()) {
            tracing::debug!(%peer, "untrusted peer on a PROXY protocol listener, closing");
            return self.context.metrics.rejected(proxy_protocol::UNTRUSTED);
        }
        match self.acquire_slot(peer, open) {
            Ok(slot) => {
                let (slot, activity) = (Arc::new(slot), Arc::new(Activity::new(Instant::now())));
                let context = Arc::clone(&self.context);
                let (task_slot, task_activity) = (Arc::clone(&slot), Arc::clone(&activity));
                let serving = connection::serve(stream, service.clone(), task_activity, context, task_slot);
                open.spawn(slot, activity, serving);
            }
            Err(cap) => {
                (self.context.on_rejection)(&Rejection::connection(cap.cause(), peer));
                match self.context.tls {
                    None => self.connections.reject(stream, cap),
                    // A TLS handshake is too expensive for a connection that is rejected.
                    Some(_) => self.connections.reject_silently(stream, cap),
                }
            }
        }
    }

    /// Acquires a slot for a connection. If the caps of the gateway or the listener are reached, evicts a connection
    /// that waits for its client.
    fn acquire_slot(&self, peer: SocketAddr, open: &mut OpenConnections) -> Result<ConnectionSlot, ConnectionCap> {
        let mut slot = self.connections.acquire(peer);
        for _ in 0..MAX_EVICTIONS {
            if !matches!(slot, Err(ConnectionCap::Gateway | ConnectionCap::Listener)) {
                break;
            }
            let Some(reason) = open.evict_one() else { break };
            self.context.metrics.rejected(reason.cause());
            slot = self.connections.acquire(peer);
        }
        slot
    }

    /// Waits until all connections are closed, and aborts the remaining ones at the deadline.
    async fn wait_for_connections(&self, mut open: OpenConnections) {
        while open.len() > 0 {
            tokio::select! {
                Some(()) = open.join_next() => {}
                () = self.context.drain.deadline_reached() => {
                    tracing::warn!(connections = open.len(), "drain deadline reached, closing connections");
                    open.abort_all().await;
                }
            }
        }
    }
}

// === impl ConnectionLimits ===

impl ConnectionLimits {
    fn new(listen: &Listen) -> Self {
        Self {
            header_timeout: listen.header_timeout,
            idle_timeout: listen.idle_timeout,
            body: MinRate { timeout: listen.body_timeout, rate: listen.min_rate },
            max_requests: listen.max_requests,
            max_streams: listen.max_streams,
            head: HeadLimits {
                fields: listen.max_fields,
                field_bytes: listen.max_field_bytes,
                target: listen.max_target,
            },
        }
    }
}

// === impl HttpService ===

impl<S, B> HttpService for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Into<BodyData>> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Body = B;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Service::poll_ready(self, cx).map(|ready| ready.unwrap_or_else(|never| match never {}))
    }

    fn call(&mut self, request: Request<RequestBody>) -> S::Future {
        Service::call(self, request)
    }
}
