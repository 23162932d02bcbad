//! The idle connections to one endpoint.
//!
//! The one used last is taken first, so that a pool that has become too large shrinks from its old end. It is taken
//! only if it is still open and has sent nothing unasked; a connection whose request was not sent to its end, or
//! whose answer was not read to its end, never comes back.

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
use crate::metrics::{BrokenOff, UpstreamMetrics};

/// How often idle connections are looked at, to close those that the other side has closed.
const SWEEP: Duration = Duration::from_secs(1);

/// The most connections kept open without use, for each endpoint and worker.
const CAPACITY: usize = 512;

/// The idle connections to one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<PoolConnections>);

/// What a pool and its connections in use share.
#[derive(Debug)]
struct PoolConnections {
    idle: Mutex<Idle>,
    seats: UpstreamSlots,
    body_timeout: Duration,
    metrics: UpstreamMetrics,
    target: Arc<TargetState>,
}

/// A connection in use. It goes back when it is released, and is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Box<Connection>,
    /// After the connection: it is dropped last, so that its seat is free only when the connection is closed.
    seat: UpstreamSlot,
    pool: Pool,
}

#[derive(Debug, Default)]
struct Idle {
    /// Oldest first.
    connections: VecDeque<Box<Connection>>,
    /// Whether a task looks after them.
    swept: bool,
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(settings: &UpstreamSettings, metrics: UpstreamMetrics, target: Arc<TargetState>) -> Self {
        let (idle, seats, body_timeout) = (Mutex::default(), UpstreamSlots::new(settings), settings.body_timeout);
        Self(Arc::new(PoolConnections { idle, seats, body_timeout, metrics, target }))
    }

    /// How many connections there may be, and whose.
    pub(crate) fn seats(&self) -> &UpstreamSlots {
        &self.0.seats
    }

    /// Counts what becomes of requests.
    pub(crate) fn metrics(&self) -> &UpstreamMetrics {
        &self.0.metrics
    }

    /// The idle connection that was used last, if there is one fit for use by a request that may be repeated or not.
    pub(crate) fn take(&self, now: Instant, is_repeatable: bool) -> Option<Box<Connection>> {
        let mut idle = self.0.idle.lock();
        loop {
            let mut connection = idle.connections.pop_back()?;
            if connection.is_usable(now, is_repeatable) {
                return Some(connection);
            }
        }
    }

    /// Closes the oldest of the idle, where another connection would be one too many.
    pub(crate) fn make_room(&self) {
        let mut idle = self.0.idle.lock();
        let excess = self.0.seats.excess(idle.connections.len()).min(idle.connections.len());
        idle.connections.drain(..excess);
    }

    /// A connection that the owner of the seat uses.
    pub(crate) fn lease(&self, connection: Box<Connection>, seat: UpstreamSlot) -> Lease {
        Lease { connection, seat, pool: self.clone() }
    }

    fn put(&self, mut connection: Box<Connection>) {
        connection.is_reused = true;
        self.add(connection);
    }

    /// Takes a connection that nobody uses.
    pub(crate) fn add(&self, mut connection: Box<Connection>) {
        let mut idle = self.0.idle.lock();
        if connection.has_surplus() || idle.connections.len() >= CAPACITY {
            return;
        }
        connection.idle_since = Instant::now();
        idle.connections.push_back(connection);
        if !idle.swept {
            idle.swept = true;
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes connections as they expire or send something unasked, until none is left.
async fn sweep(pool: Weak<PoolConnections>) {
    while let Some(oldest) = close_unusable(&pool) {
        sleep_until((oldest + IDLE_TIMEOUT).min(Instant::now() + SWEEP)).await;
    }
}

/// When the oldest of those that are left became idle.
fn close_unusable(pool: &Weak<PoolConnections>) -> Option<Instant> {
    let pool = pool.upgrade()?;
    let mut idle = pool.idle.lock();
    let now = Instant::now();
    idle.connections.retain_mut(|connection| connection.is_usable(now, false));
    let oldest = idle.connections.front().map(|connection| connection.idle_since);
    idle.swept = oldest.is_some();
    oldest
}

// === impl Lease ===

impl Lease {
    /// The connection, to send on.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Ready if nothing has come of a body for longer than an upstream may be silent, which it has been since then.
    pub(crate) fn poll_silent(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.timer.poll(since + self.pool.0.body_timeout, cx)
    }

    /// Counts what becomes of answers.
    pub(crate) fn metrics(&self) -> &UpstreamMetrics {
        self.pool.metrics()
    }

    /// Records that the response broke off.
    pub(crate) fn broke_off(&self, why: BrokenOff, error: &io::Error) {
        self.metrics().broken_off(why);
        self.pool.0.target.broke_off(error);
    }

    /// Closes the connection, and keeps its seat for another.
    pub(crate) fn close(self) -> UpstreamSlot {
        self.seat
    }

    /// Gives the connection back, once its answer has been read to the end, and then the seat: the next in
    /// line finds the connection in the pool.
    pub(crate) fn release(self) {
        self.pool.put(self.connection);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use http::uri::Authority;

    use super::*;
    use crate::metrics::Metrics;
    use crate::upstream::dialer::Dialer;
    use crate::upstream::settings::Target;

    /// A pool with one idle connection, and the other end of it.
    async fn one_idle() -> (Pool, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = Authority::try_from(listener.local_addr().unwrap().to_string()).unwrap();
        let settings = UpstreamSettings { max_connections: 2, ..UpstreamSettings::new("api".into(), Vec::new()) };
        let metrics = Metrics::new();
        let target = TargetState::new(&settings.name, &Target::Http(authority.clone()), &metrics);
        let pool = Pool::new(&settings, metrics.upstream("api"), target);
        let connection = Connection::open(&Dialer::clear(&authority, &settings), pool.metrics()).await.unwrap();
        pool.lease(connection, pool.seats().try_take(None).unwrap()).release();
        (pool, listener.accept().unwrap().0)
    }

    // The other end acts while the runtime does not run: it has been told of nothing.

    #[tokio::test]
    async fn a_connection_is_taken_while_nothing_has_come() {
        let (pool, _other) = one_idle().await;
        assert!(pool.take(Instant::now(), false).is_some_and(|connection| connection.is_reused));
        assert!(pool.take(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn a_connection_whose_end_only_the_kernel_knows_is_not_taken() {
        let (pool, other) = one_idle().await;
        drop(other);
        assert!(pool.take(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn a_connection_that_was_reset_is_not_taken() {
        let (pool, other) = one_idle().await;
        socket2::SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
        drop(other);
        assert!(pool.take(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn a_connection_with_bytes_that_only_the_kernel_knows_is_not_taken() {
        let (pool, mut other) = one_idle().await;
        other.write_all(b"HTTP/1.1 200 OK").unwrap();
        assert!(pool.take(Instant::now(), false).is_none());
    }

    #[tokio::test]
    async fn an_idle_connection_leaves_its_room_to_a_new_one_only_where_there_is_no_other() {
        let (pool, _other) = one_idle().await;
        let _first = pool.seats().try_take(None).unwrap();
        pool.make_room();
        assert_eq!(pool.0.idle.lock().connections.len(), 1);
        let _second = pool.seats().try_take(None).unwrap();
        pool.make_room();
        assert_eq!(pool.0.idle.lock().connections.len(), 0);
        assert!(pool.seats().try_take(None).is_none());
    }
}
