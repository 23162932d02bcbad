//! Accepts connections and serves requests on them, until it is told to drain.
//!
//! Every worker runs [`Server::serve`] on a listener of its own (see [`bind()`]); clones of one [`Server`] share the
//! connection cap.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

mod accept;
mod activity;
mod bind;
mod connection;
mod drain;
mod http1;
mod protocol;
mod service;
mod slots;
mod stream;
mod watch;

#[cfg(test)]
mod tests;

pub use bind::bind;
pub use drain::{Drain, DrainTrigger};

use crate::config::Listen;
use crate::metrics::Metrics;
use crate::upstream::RequestBody;
use accept::Accept;
use slots::Slots;

/// What answers requests: a function of the request and its peer.
///
/// Every `Fn(Request<RequestBody>, SocketAddr) -> Future<Output = Response<B>>` is one.
pub trait Handler: Clone + Send + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static;
    /// Its answer to be.
    type Future: Future<Output = Response<Self::Body>> + Send + 'static;

    /// Answers one request.
    fn handle(&self, request: Request<RequestBody>, peer: SocketAddr) -> Self::Future;
}

/// One entry of `listen:`, ready to serve.
#[derive(Clone, Debug)]
pub struct Server {
    terms: Arc<Terms>,
    slots: Slots,
}

/// What all connections of a server are served under.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) limits: Limits,
    pub(crate) drain: Drain,
}

/// How long a connection may take for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    /// The longest that bytes of ours may wait for a client to read.
    pub(crate) stall_timeout: Duration,
}

/// Longer than the pauses of a bad network, and too short to hold what an answer occupies.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

// === impl Server ===

impl Server {
    /// Serves as `listen` says, until `drain` is triggered.
    pub fn new(listen: &Listen, metrics: Arc<Metrics>, drain: Drain) -> Self {
        let limits = Limits {
            header_timeout: listen.header_timeout,
            idle_timeout: listen.idle_timeout,
            stall_timeout: STALL_TIMEOUT,
        };
        Self { terms: Arc::new(Terms { limits, drain }), slots: Slots::new(listen.max_connections, metrics) }
    }

    /// Serves on `listener`; returns when everything has drained, or the drain's deadline has passed.
    ///
    /// # Errors
    /// A listener that cannot be used. Failures to accept are waited out.
    pub async fn serve<H: Handler>(self, listener: std::net::TcpListener, handler: H) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let mut accept = Accept::new(TcpListener::from_std(listener)?);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                _ = self.terms.drain.started() => break,
                (stream, peer) = accept.next() => self.admit(stream, peer, &handler, &mut connections),
                Some(_) = connections.join_next() => {}
            }
        }
        // Who has connected before the end has a place in the kernel's queue, and is served.
        while let Some((stream, peer)) = accept.now() {
            self.admit(stream, peer, &handler, &mut connections);
        }
        drop(accept);
        self.finish(connections).await;
        Ok(())
    }

    fn admit<H: Handler>(&self, stream: TcpStream, peer: SocketAddr, handler: &H, connections: &mut JoinSet<()>) {
        match self.slots.take() {
            Some(slot) => {
                connections.spawn(connection::serve(stream, peer, handler.clone(), self.terms.clone(), slot));
            }
            None => self.slots.refuse(stream),
        }
    }

    /// Waits for connections to end, and at the deadline ends those that are left.
    async fn finish(&self, mut connections: JoinSet<()>) {
        while !connections.is_empty() {
            tokio::select! {
                _ = connections.join_next() => {}
                () = self.terms.drain.over() => {
                    tracing::warn!(connections = connections.len(), "closing connections at the end of the drain");
                    connections.shutdown().await;
                }
            }
        }
    }
}

// === impl Handler ===

impl<H, F, B> Handler for H
where
    H: Fn(Request<RequestBody>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Body = B;
    type Future = F;

    fn handle(&self, request: Request<RequestBody>, peer: SocketAddr) -> F {
        self(request, peer)
    }
}
