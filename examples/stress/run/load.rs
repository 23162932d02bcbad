//! Clients with more requests than the limits admit. Each has a keep-alive connection to one of the gateways and sends
//! one request after another, at a fixed rate or as fast as possible.
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::client::get;
use super::table;

/// The current addresses of the gateways. A restarted gateway has a new address.
pub type Addresses = Arc<RwLock<Vec<SocketAddr>>>;

/// The number of responses by status; 0 for requests without a response.
pub type StatusCounts = BTreeMap<u16, u64>;

/// Longer than any response takes, also after a decision that times out.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// A running load.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<StatusCounts>,
    ended: Arc<AtomicBool>,
}

/// A client with one connection, which is reopened after it ends.
struct Client {
    number: usize,
    addresses: Addresses,
    stream: Option<TcpStream>,
    statuses: StatusCounts,
}

impl Load {
    /// Starts clients that together send `rate` requests per second. Without a rate, each sends a request as soon as
    /// the previous one has its response.
    pub fn start(addresses: &Addresses, connections: usize, rate: Option<u32>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let second = Duration::from_secs(1) * u32::try_from(connections).unwrap_or(u32::MAX);
        let interval_per_client = rate.map(|rate| second / rate.max(1));
        let mut clients = JoinSet::new();
        for number in 0..connections {
            let addresses = Arc::clone(addresses);
            let client = Client { number, addresses, stream: None, statuses: StatusCounts::new() };
            clients.spawn(client.run(interval_per_client, Arc::clone(&ended)));
        }
        Self { clients, ended }
    }

    /// Stops the load after all responses have arrived.
    pub async fn stop(self) -> StatusCounts {
        self.ended.store(true, Ordering::Relaxed);
        let mut all = StatusCounts::new();
        for (status, count) in self.clients.join_all().await.into_iter().flatten() {
            *all.entry(status).or_default() += count;
        }
        all
    }
}

impl Client {
    async fn run(mut self, interval_per_client: Option<Duration>, ended: Arc<AtomicBool>) -> StatusCounts {
        let mut ticks = interval_per_client.map(interval);
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let paths = table::paths();
        for number in self.number.. {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let response = timeout(RESPONSE_TIMEOUT, self.get(&paths[number % paths.len()])).await;
            let status = response.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).unwrap_or(0);
            *self.statuses.entry(status).or_default() += 1;
            if status == 0 {
                // The gateway restarts. The next request uses its new address.
                self.stream = None;
                sleep(Duration::from_millis(20)).await;
            }
        }
        self.statuses
    }

    async fn get(&mut self, path: &str) -> io::Result<u16> {
        let address = {
            let addresses = self.addresses.read();
            addresses[self.number % addresses.len()]
        };
        get(&mut self.stream, address, path, "").await.map(|(status, _)| status)
    }
}
