//! Limits the rate of TLS handshakes of each client, in a fixed amount of memory.
//!
//! Two tables have a cell for each client, chosen by a secret hash. A client exceeds its rate only if its cell is
//! exhausted in both tables. Two clients that share a cell of one table rarely share a cell of the other.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

/// The number of cells of a table. Both tables need 128 KiB.
const CELLS: usize = 8192;

/// The time over which the rate is measured. A client may use the handshakes of this time at once.
const WINDOW: Duration = Duration::from_secs(10);

/// The handshakes of one listener, shared by all workers.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    /// The time in which a client regains one handshake, in microseconds.
    interval: u64,
    start: Instant,
    tables: [Table; 2],
}

#[derive(Debug)]
struct Table {
    hasher: RandomState,
    /// For each cell when all of its handshakes are available again, in microseconds since the start.
    full_at: Box<[AtomicU64]>,
}

impl HandshakeLimit {
    /// Allows each client `rate` handshakes a second. Returns `None` if the rate is 0: then nothing is limited.
    pub(crate) fn new(rate: u32) -> Option<Self> {
        let interval = 1_000_000_u64.checked_div(rate.into())?.max(1);
        Some(Self { interval, start: Instant::now(), tables: [Table::new(), Table::new()] })
    }

    /// Counts a handshake. Returns `false` if the client has exceeded its rate; then it is not counted.
    pub(crate) fn allows(&self, client: &IpNet) -> bool {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let end = now.saturating_add(u64::try_from(WINDOW.as_micros()).unwrap_or(u64::MAX));
        let cells = self.tables.each_ref().map(|table| table.cell(client));
        let charged = |full_at: u64| full_at.max(now).saturating_add(self.interval);
        if cells.iter().all(|cell| charged(cell.load(Ordering::Relaxed)) > end) {
            return false;
        }
        for cell in cells {
            // A cell that another client has exhausted stays exhausted.
            let charge = |full_at| Some(charged(full_at).min(end));
            _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
        }
        true
    }
}

impl Table {
    fn new() -> Self {
        Self { hasher: RandomState::new(), full_at: (0..CELLS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn cell(&self, client: &IpNet) -> &AtomicU64 {
        let index = usize::try_from(self.hasher.hash_one(client) % CELLS as u64);
        &self.full_at[index.unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpNet {
        IpNet::from(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn count(limit: &HandshakeLimit, client: &IpNet) -> usize {
        (0..10_000).take_while(|_| limit.allows(client)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn client_regains_handshakes_at_its_rate() {
        let limit = HandshakeLimit::new(50).unwrap();
        assert_eq!(count(&limit, &client(1)), 500);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(count(&limit, &client(1)), 100);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(count(&limit, &client(1)), 500);
    }

    /// A client shares both cells with one of 100 attackers in about 1 of 6,700 runs, so three of the clients rarely do.
    #[tokio::test(start_paused = true)]
    async fn attackers_do_not_exhaust_other_clients() {
        let limit = HandshakeLimit::new(1).unwrap();
        assert!((100..200).filter(|attacker| count(&limit, &client(*attacker)) > 0).count() >= 97);
        assert!((0..100).filter(|other| limit.allows(&client(*other))).count() >= 97);
    }

    #[test]
    fn rate_of_zero_limits_nothing() {
        assert!(HandshakeLimit::new(0).is_none());
    }
}
