//! Reloads of a running gateway: what changes, and what is kept.

mod file;
mod include;
mod listeners;
mod load;
mod prices;
mod requests;
mod rules;
mod saved;
mod service;
mod store;
mod teams;
mod upstreams;
mod values;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::support::wire::upstream::{Origin, OriginConnection};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Returns rules with one upstream and a route with these limits.
fn rules(upstream: SocketAddr, limits: &str) -> String {
    format!(
        "upstreams: {{ api: {{ targets: ['http://{upstream}'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api, limits: [{limits}] }}]"
    )
}

/// Returns a limit of all requests in an hour.
fn total(rate: u32) -> String {
    format!("{{ name: total, mode: OVERALL, rate: {rate}, interval: 1h }}")
}

/// An origin that responds with its name, after the gate has a permit for the request.
struct GatedOrigin {
    origin: Origin,
    gate: Arc<Semaphore>,
    /// The number of connections that were closed.
    closed: Arc<AtomicUsize>,
}

impl GatedOrigin {
    async fn start(name: &'static str) -> Self {
        let (gate, closed) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
        let (waiting, counted) = (Arc::clone(&gate), Arc::clone(&closed));
        let origin = Origin::start(move |mut conn: OriginConnection| {
            let (gate, closed) = (Arc::clone(&waiting), Arc::clone(&counted));
            async move {
                while conn.request().await.is_some() {
                    gate.acquire().await.expect("a gate").forget();
                    conn.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())).await;
                }
                closed.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { origin: origin.await, gate, closed }
    }

    /// Lets this many requests pass.
    fn open(&self, requests: usize) {
        self.gate.add_permits(requests);
    }

    fn address(&self) -> SocketAddr {
        self.origin.address
    }

    fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }
}
