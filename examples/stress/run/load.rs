//! Clients that ask more often than they may: keep-alive connections, spread over the gateways, each asking for one path
//! after the other, at a bounded pace or as fast as it is answered.

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

use super::client::ask;
use super::table;

/// Where the gateways are at present; who is restarted is elsewhere.
pub type Addresses = Arc<RwLock<Vec<SocketAddr>>>;

/// How many answers had which status; 0 for requests without an answer.
pub type Answers = BTreeMap<u16, u64>;

/// No answer takes longer: not even a decision that waits for its deadline.
const PATIENCE: Duration = Duration::from_secs(15);

/// A load that runs.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<Answers>,
    ended: Arc<AtomicBool>,
}

/// One connection and those that follow when it ends.
struct Client {
    number: usize,
    addresses: Addresses,
    stream: Option<TcpStream>,
    answers: Answers,
}

impl Load {
    /// Starts so many connections that together ask so often in a second; or, without a rate, each again as soon as it is
    /// answered.
    pub fn start(addresses: &Addresses, connections: usize, rate: Option<u32>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let second = Duration::from_secs(1) * u32::try_from(connections).unwrap_or(u32::MAX);
        let pace = rate.map(|rate| second / rate.max(1));
        let mut clients = JoinSet::new();
        for number in 0..connections {
            let addresses = Arc::clone(addresses);
            let client = Client { number, addresses, stream: None, answers: Answers::new() };
            clients.spawn(client.ask_on(pace, Arc::clone(&ended)));
        }
        Self { clients, ended }
    }

    /// Ends it: every request that was sent is answered first.
    pub async fn end(self) -> Answers {
        self.ended.store(true, Ordering::Relaxed);
        let mut all = Answers::new();
        for (status, count) in self.clients.join_all().await.into_iter().flatten() {
            *all.entry(status).or_default() += count;
        }
        all
    }
}

impl Client {
    async fn ask_on(mut self, pace: Option<Duration>, ended: Arc<AtomicBool>) -> Answers {
        let mut ticks = pace.map(interval);
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let paths = table::paths();
        for turn in self.number.. {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let answer = timeout(PATIENCE, self.ask(&paths[turn % paths.len()])).await;
            let status = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).unwrap_or(0);
            *self.answers.entry(status).or_default() += 1;
            if status == 0 {
                // The gateway is being restarted: the next request goes where it is then.
                self.stream = None;
                sleep(Duration::from_millis(20)).await;
            }
        }
        self.answers
    }

    async fn ask(&mut self, path: &str) -> io::Result<u16> {
        let address = {
            let addresses = self.addresses.read();
            addresses[self.number % addresses.len()]
        };
        ask(&mut self.stream, address, path, "").await.map(|(status, _)| status)
    }
}
