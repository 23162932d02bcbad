//! The open connections to one endpoint that nobody is using.
//!
//! The one used last is taken first, so that a pool that has become too large shrinks from its old end. What comes
//! back is used again only if it is still open and nothing came that nobody asked for; a connection whose request was not
//! sent to its end, or whose answer was not read to its end, never comes back.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;

/// Less than the shortest keep-alive of common servers (Node.js: 5 s), so that it is we who close, and no request meets
/// a connection that the other side is just closing.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The most connections kept open without use, for each endpoint and worker.
const CAPACITY: usize = 512;

/// The idle connections to one endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Idle>>);

/// A connection in use. It goes back when it is released, and is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Box<Connection>,
    pool: Pool,
}

#[derive(Debug, Default)]
struct Idle {
    /// Oldest first.
    connections: VecDeque<Box<Connection>>,
    /// Whether a task is waiting for the oldest to expire.
    swept: bool,
}

// === impl Pool ===

impl Pool {
    /// The idle connection that was used last, if there is one fit for use.
    pub(crate) fn take(&self, now: Instant) -> Option<Lease> {
        let mut idle = self.0.lock();
        loop {
            let connection = idle.connections.pop_back()?;
            if connection.is_usable(now) {
                return Some(self.lease(connection));
            }
        }
    }

    /// A new connection as this pool's own.
    pub(crate) fn lease(&self, connection: Box<Connection>) -> Lease {
        Lease { connection, pool: self.clone() }
    }

    fn put(&self, mut connection: Box<Connection>) {
        let mut idle = self.0.lock();
        if !connection.is_quiet() || idle.connections.len() >= CAPACITY {
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

/// Closes connections as they expire, until none is left.
async fn sweep(pool: Weak<Mutex<Idle>>) {
    while let Some(oldest) = close_expired(&pool) {
        sleep_until(oldest + IDLE_TIMEOUT).await;
    }
}

/// When the oldest of those that are left became idle.
fn close_expired(pool: &Weak<Mutex<Idle>>) -> Option<Instant> {
    let pool = pool.upgrade()?;
    let mut idle = pool.lock();
    let now = Instant::now();
    idle.connections.retain(|connection| connection.is_usable(now));
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

    /// Gives the connection back, once its answer has been read to the end.
    pub(crate) fn release(self) {
        self.pool.put(self.connection);
    }
}
