//! The idle HTTP/1.1 connections to one endpoint.
//!
//! The most recently used connection is taken first, so that a pool that is too large shrinks from its old end. A
//! connection is taken only if it is still open and has received no bytes. A connection does not return to the pool if
//! its request was not sent completely, or its response was not read completely.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::connection::{Connection, IDLE_TIMEOUT};
use super::settings::UpstreamSettings;
use super::slots::{UpstreamSlot, UpstreamSlots};
use super::target::TargetState;
use tidegate_limit::clock::poll_time;
use tidegate_metrics::{BrokenResponse, UpstreamMetrics};

/// How often idle connections are checked, to close those that the upstream has closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of idle connections for each endpoint and worker.
const MAX_IDLE: usize = 512;

/// The idle connections to one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<PoolConnections>);

/// The state that a pool shares with its connections in use.
#[derive(Debug)]
struct PoolConnections {
    idle: Mutex<Idle>,
    slots: UpstreamSlots,
    idle_timeout: Duration,
    metrics: UpstreamMetrics,
    target: Arc<TargetState>,
}

/// A connection in use. Returns to the pool on release, and closes on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Box<Connection>,
    /// Declared after the connection, so that the slot is freed after the connection is closed.
    slot: UpstreamSlot,
    pool: Pool,
}

#[derive(Debug, Default)]
struct Idle {
    /// Oldest first.
    connections: VecDeque<Box<Connection>>,
    /// Whether the sweep task is running.
    is_swept: bool,
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(settings: &UpstreamSettings, metrics: UpstreamMetrics, target: Arc<TargetState>) -> Self {
        let slots = UpstreamSlots::new(settings, Arc::clone(&target));
        let (idle, idle_timeout) = (Mutex::default(), settings.timeouts.idle);
        Self(Arc::new(PoolConnections { idle, slots, idle_timeout, metrics, target }))
    }

    /// Returns the connection slots of the endpoint.
    pub(crate) fn slots(&self) -> &UpstreamSlots {
        &self.0.slots
    }

    /// Returns the metrics of the upstream.
    pub(crate) fn metrics(&self) -> &UpstreamMetrics {
        &self.0.metrics
    }

    /// Returns the number of idle connections.
    pub(crate) fn idle(&self) -> usize {
        self.0.idle.lock().connections.len()
    }

    /// Takes the most recently used idle connection that is usable. See [`Connection::is_usable`].
    pub(crate) fn take_idle(&self, now: Instant, is_repeatable: bool) -> Option<Box<Connection>> {
        let mut idle = self.0.idle.lock();
        loop {
            let mut connection = idle.connections.pop_back()?;
            if connection.is_usable(now, is_repeatable) {
                return Some(connection);
            }
        }
    }

    /// Closes the oldest idle connections that are above the limit of open connections.
    pub(crate) fn close_excess(&self) {
        let mut idle = self.0.idle.lock();
        let excess = self.0.slots.excess(idle.connections.len()).min(idle.connections.len());
        idle.connections.drain(..excess);
    }

    /// Leases a connection to the owner of the slot.
    pub(crate) fn lease(&self, connection: Box<Connection>, slot: UpstreamSlot) -> Lease {
        Lease { connection, slot, pool: self.clone() }
    }

    fn put_back(&self, mut connection: Box<Connection>) {
        connection.is_reused = true;
        self.add_idle(connection);
    }

    /// Adds an idle connection.
    pub(crate) fn add_idle(&self, mut connection: Box<Connection>) {
        let mut idle = self.0.idle.lock();
        if connection.has_unread_bytes() || idle.connections.len() >= MAX_IDLE {
            return;
        }
        connection.idle_since = poll_time();
        idle.connections.push_back(connection);
        if !idle.is_swept {
            idle.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes idle connections that have expired or are not usable, until none are left.
async fn sweep(pool: Weak<PoolConnections>) {
    while let Some(oldest) = close_unusable(&pool) {
        sleep_until((oldest + IDLE_TIMEOUT).min(Instant::now() + SWEEP_INTERVAL)).await;
    }
}

/// Closes unusable connections. Returns since when the oldest of the others is idle.
fn close_unusable(pool: &Weak<PoolConnections>) -> Option<Instant> {
    let pool = pool.upgrade()?;
    let mut idle = pool.idle.lock();
    let now = Instant::now();
    idle.connections.retain_mut(|connection| connection.is_usable(now, false));
    let oldest = idle.connections.front().map(|connection| connection.idle_since);
    idle.is_swept = oldest.is_some();
    oldest
}

// === impl Lease ===

impl Lease {
    /// Returns the connection.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Returns `Ready` once `timeouts.idle` has passed since `since`.
    pub(crate) fn poll_idle_timeout(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.timer.poll(since + self.pool.0.idle_timeout, cx)
    }

    /// Returns the metrics of the upstream.
    pub(crate) fn metrics(&self) -> &UpstreamMetrics {
        self.pool.metrics()
    }

    /// Records that the response body broke off.
    pub(crate) fn record_broken_body(&self, cause: BrokenResponse, error: &io::Error) {
        self.metrics().broken_response(cause);
        self.pool.0.target.record_broken_body(error);
    }

    /// Closes the connection and returns its slot.
    pub(crate) fn close_and_keep_slot(self) -> UpstreamSlot {
        self.slot
    }

    /// Returns the connection to the pool, then frees the slot. So the next waiting request finds the connection in the
    /// pool.
    pub(crate) fn release(self) {
        self.pool.put_back(self.connection);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::upstream::address::Address;
    use crate::upstream::dialer::Dialer;
    use tidegate_metrics::Metrics;

    /// A pool with one idle connection, and the other end of it.
    async fn one_idle() -> (Pool, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let settings = UpstreamSettings { max_connections: 2, ..UpstreamSettings::new("api".into(), Vec::new()) };
        let metrics = Metrics::of_gateway(&[]);
        let target = TargetState::for_test(&metrics);
        let pool = Pool::new(&settings, metrics.upstream("api"), target);
        let connection = Connection::open(&Dialer::plaintext(address, None, &settings), pool.metrics()).await.unwrap();
        pool.lease(connection, pool.slots().try_acquire(None).unwrap()).release();
        (pool, listener.accept().unwrap().0)
    }

    // In these tests the upstream acts while the runtime does not poll for events.

    #[tokio::test]
    async fn connection_without_received_bytes_is_taken() {
        let (pool, _other) = one_idle().await;
        assert!(pool.take_idle(Instant::now(), false).is_some_and(|connection| connection.is_reused));
        assert!(pool.take_idle(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn closed_connection_is_not_taken_before_the_runtime_polls() {
        let (pool, other) = one_idle().await;
        drop(other);
        assert!(pool.take_idle(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn reset_connection_is_not_taken() {
        let (pool, other) = one_idle().await;
        socket2::SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
        drop(other);
        assert!(pool.take_idle(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn connection_with_received_bytes_is_not_taken() {
        let (pool, mut other) = one_idle().await;
        other.write_all(b"HTTP/1.1 200 OK").unwrap();
        assert!(pool.take_idle(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn idle_connection_is_closed_only_above_the_limit() {
        let (pool, _other) = one_idle().await;
        let _first = pool.slots().try_acquire(None).unwrap();
        pool.close_excess();
        assert_eq!(pool.0.idle.lock().connections.len(), 1);
        let _second = pool.slots().try_acquire(None).unwrap();
        pool.close_excess();
        assert_eq!(pool.0.idle.lock().connections.len(), 0);
        assert!(pool.slots().try_acquire(None).is_none());
    }
}
