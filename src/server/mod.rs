//! Accepts connections and serves requests on them, until it is told to drain.
//!
//! Every worker runs [`Server::serve`] on listeners of its own (see [`bind()`]); clones of one [`Server`] share the
//! connection cap.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use socket2::Socket;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::Service;

mod accept;
mod activity;
mod bind;
mod connection;
mod crowd;
mod drain;
mod greeting;
mod handshakes;
mod head;
mod http1;
mod http2;
mod listener;
mod open;
mod pace;
mod peer;
mod protocol;
pub(crate) mod proxied;
mod rank;
mod refused;
mod scheme;
mod slots;
mod socket;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod watch;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use bind::bind_one;
pub(crate) use bind::{bind, is_free};
pub(crate) use drain::{Drain, DrainTrigger};
pub(crate) use listener::Listener;
pub(crate) use refused::Refused;
pub(crate) use slots::Capacity;

#[cfg(test)]
use crate::client::AddressRules;
use crate::config::Listen;
use crate::metrics::Metrics;
use crate::tls::Termination;
use crate::transport::Transport;
use crate::upstream::RequestBody;
use accept::Accept;
use activity::Activity;
use handshakes::HandshakeLimit;
use head::Bounds;
use open::Open;
use pace::Demand;
use slots::{Full, Slot, Slots};

/// How many connections are ended for a place: another worker may take what the first one leaves.
const TRIES: usize = 3;

/// A Tower service that answers requests, and always has an answer. The client's address is in the extensions of each, as a
/// [`Peer`](crate::layer::Peer).
pub(crate) trait HttpService: Clone + Send + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static;
    /// Its answer to be.
    type Future: Future<Output = Result<Response<Self::Body>, Infallible>> + Send + 'static;

    /// See [`Service::poll_ready`].
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// See [`Service::call`].
    fn call(&mut self, request: Request<RequestBody>) -> Self::Future;
}

/// One entry of `listen:`, ready to serve.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    terms: Arc<Terms>,
    slots: Slots,
}

/// What all connections of a server are served under.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Whether clients come through proxies that tell of them.
    pub(crate) proxy_protocol: bool,
    /// Whether forwarded fields are trusted of a proxy whose header names no client.
    pub(crate) trust_unknown: bool,
    /// TLS, where it is spoken.
    pub(crate) tls: Option<Arc<Termination>>,
    /// Limits TLS handshakes, if the listener has TLS and a rate.
    pub(crate) handshakes: Option<HandshakeLimit>,
    /// Whether HTTP/2 is spoken beside HTTP/1.
    pub(crate) http2: bool,
    pub(crate) limits: ConnectionLimits,
    pub(crate) drain: Drain,
    pub(crate) metrics: Arc<Metrics>,
    /// Is told of what was answered without the service.
    pub(crate) on_refused: fn(&Refused<'_>),
}

/// How long a connection of a client may take for what, and how much it may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    /// How fast bodies must move, as far as it depends on the client.
    pub(crate) body: Demand,
    /// Requests that one connection may bring.
    pub(crate) max_requests: u32,
    /// Requests that one connection of HTTP/2 may have open at a time.
    pub(crate) max_streams: u32,
    /// How large a head may be.
    pub(crate) head: Bounds,
}

// === impl Server ===

impl Server {
    /// Serves as `listen` says, until `drain` is triggered; with a capacity of its own.
    #[cfg(test)]
    pub(crate) fn new(listen: &Listen, metrics: Arc<Metrics>, drain: Drain) -> Self {
        Self::within(&Capacity::new(usize::MAX, AddressRules::default(), metrics), listen, None, drain, |_| {})
    }

    /// Serves as `listen` says, until `drain` is triggered; over TLS where it is given.
    pub(crate) fn within(
        capacity: &Capacity,
        listen: &Listen,
        tls: Option<Arc<Termination>>,
        drain: Drain,
        on_refused: fn(&Refused<'_>),
    ) -> Self {
        let (limits, http2) = (ConnectionLimits::of(listen), listen.http2);
        let (proxy_protocol, trust_unknown) = (listen.proxy_protocol, listen.trust_unknown);
        let metrics = Arc::clone(capacity.metrics());
        let handshakes = listen.tls.as_ref().and_then(|tls| HandshakeLimit::new(tls.max_handshake_rate));
        let terms = Terms { proxy_protocol, trust_unknown, tls, handshakes, http2, limits, drain, metrics, on_refused };
        Self { terms: Arc::new(terms), slots: Slots::new(listen, capacity) }
    }

    /// Serves on a listening socket; returns when everything has drained, or the drain's deadline has passed. It goes on when a
    /// mistake in the program ends the task that accepts: nobody else would take the connections that the kernel gives to
    /// this listener.
    ///
    /// # Errors
    /// A listener that cannot be used. Failures to accept are waited out.
    pub(crate) async fn serve<S: HttpService>(self, socket: impl Into<Socket>, service: S) -> io::Result<()> {
        let listener = Listener::new(socket.into())?;
        listener.prepare(self.terms.limits.body.timeout)?;
        let mut listener = Some(Arc::new(listener));
        while let Some(open) = &listener {
            let mut serving = JoinSet::new();
            serving.spawn(self.clone().accept(Arc::clone(open), service.clone()));
            let ended = tokio::select! {
                biased;
                ended = serving.join_next() => ended,
                _ = self.terms.drain.started() => {
                    listener = None; // or clients would connect to the end
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

    /// Accepts connections until the drain, then waits for their end.
    async fn accept<S: HttpService>(self, listener: Arc<Listener>, service: S) {
        let mut accept = Accept::new(listener, Arc::clone(&self.terms.metrics));
        let mut open = Open::default();
        loop {
            tokio::select! {
                biased;
                _ = self.terms.drain.started() => break,
                (stream, peer) = accept.next() => self.admit(stream, peer, &service, &mut open),
                Some(()) = open.next_end() => {}
            }
        }
        // Who has connected before the end has a place in the kernel's queue, and is served.
        while let Some((stream, peer)) = accept.now() {
            self.admit(stream, peer, &service, &mut open);
        }
        drop(accept);
        tokio::task::yield_now().await; // requests that have come are read first
        open.end_resting();
        self.finish(open).await;
    }

    fn admit<S: HttpService>(&self, stream: Transport, mut peer: SocketAddr, service: &S, open: &mut Open) {
        peer.set_ip(peer.ip().to_canonical()); // one form of an address, wherever it is told
        if self.terms.proxy_protocol && !self.slots.trusts(peer.ip()) {
            tracing::debug!(%peer, "a stranger connected where proxies tell of their clients");
            return self.terms.metrics.rejected(proxied::UNTRUSTED);
        }
        match self.place(peer, open) {
            Ok(slot) => {
                let (slot, activity) = (Arc::new(slot), Arc::new(Activity::new(Instant::now())));
                let terms = Arc::clone(&self.terms);
                let (of_task, notes) = (Arc::clone(&slot), Arc::clone(&activity));
                let serving = connection::serve(stream, service.clone(), notes, terms, of_task);
                open.spawn(slot, activity, serving);
            }
            Err(full) => {
                (self.terms.on_refused)(&Refused::connection(full.cause(), peer));
                match self.terms.tls {
                    None => self.slots.refuse(stream, full),
                    // A greeting costs more than there is for it.
                    Some(_) => self.slots.refuse_silently(stream, full),
                }
            }
        }
    }

    /// A place for a connection. Where all are taken, one that waits for its client is ended.
    fn place(&self, peer: SocketAddr, open: &mut Open) -> Result<Slot, Full> {
        let mut place = self.slots.take(peer);
        for _ in 0..TRIES {
            if !matches!(place, Err(Full::Gateway | Full::Listener)) {
                break;
            }
            let Some(what) = open.end_one() else { break };
            self.terms.metrics.rejected(what.cause());
            place = self.slots.take(peer);
        }
        place
    }

    /// Waits for connections to end, and at the deadline ends those that are left.
    async fn finish(&self, mut open: Open) {
        while open.len() > 0 {
            tokio::select! {
                Some(()) = open.next_end() => {}
                () = self.terms.drain.over() => {
                    tracing::warn!(connections = open.len(), "closing connections at the end of the drain");
                    open.shutdown().await;
                }
            }
        }
    }
}

// === impl ConnectionLimits ===

impl ConnectionLimits {
    fn of(listen: &Listen) -> Self {
        Self {
            header_timeout: listen.header_timeout,
            idle_timeout: listen.idle_timeout,
            body: Demand { timeout: listen.body_timeout, rate: listen.min_rate },
            max_requests: listen.max_requests,
            max_streams: listen.max_streams,
            head: Bounds { fields: listen.max_fields, field_bytes: listen.max_field_bytes, target: listen.max_target },
        }
    }
}

// === impl HttpService ===

impl<S, B> HttpService for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
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
