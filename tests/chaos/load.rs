//! Clients that ask more often than they may: keep-alive connections, spread over the gateways, at a bounded pace.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::clock::{Clock, Stopwatch, SystemClock};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::client::ask;
use super::journal::{By, Journal, Record};
use super::table::ROUTES;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The pause before another try to connect.
const RETRY: Duration = Duration::from_millis(5);

const CONNECTIONS: usize = 64;

/// A load that runs.
pub struct Load {
    clients: JoinSet<()>,
    ended: Arc<AtomicBool>,
}

/// What all clients share.
struct Clients {
    gateways: Vec<SocketAddr>,
    journal: Journal,
    clock: SystemClock,
    next: AtomicU64,
    ended: Arc<AtomicBool>,
}

/// A route and a client of it, by number.
type Target = (u8, u8);

impl Load {
    /// Starts connections that together ask so often in a second.
    pub fn start(gateways: Vec<SocketAddr>, rate: u32, journal: Journal) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let pace = Duration::from_secs(1) * u32::try_from(CONNECTIONS).expect("a number") / rate;
        let (clock, next) = (SystemClock::new(), AtomicU64::new(1));
        let shared = Arc::new(Clients { gateways, journal, clock, next, ended: Arc::clone(&ended) });
        let mut clients = JoinSet::new();
        for number in 0..CONNECTIONS {
            clients.spawn(Arc::clone(&shared).ask_on(number, pace));
        }
        Self { clients, ended }
    }

    /// Ends it: every request that was sent is answered first.
    pub async fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
    }
}

impl Clients {
    async fn ask_on(self: Arc<Self>, number: usize, pace: Duration) {
        let gateway = number % self.gateways.len();
        let (mut ticks, mut stream, targets) = (interval(pace), None, targets());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in number.. {
            ticks.tick().await;
            if self.ended.load(Ordering::Relaxed) {
                return;
            }
            let (route, client) = targets[turn % targets.len()];
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (begin, watch) = (self.clock.now().as_millis(), Stopwatch::start());
            let path = format!("/{}/{id}", ROUTES[usize::from(route)].name);
            let status = status(&mut stream, self.gateways[gateway], &path, client).await;
            let (took, end) = (watch.elapsed(), self.clock.now().as_millis());
            let gateway = u8::try_from(gateway).expect("few gateways");
            let by = By::Nobody;
            self.journal.seen(id, Record { begin, end, took, status, gateway, route, client, by });
        }
    }
}

/// Each route as often as it has clients, but in no order that a pace could meet.
fn targets() -> Vec<Target> {
    let of = |(route, clients): (usize, usize)| {
        (0..clients.max(2)).map(move |client| (u8::try_from(route).unwrap(), u8::try_from(client % clients).unwrap()))
    };
    let mut targets: Vec<Target> = ROUTES.iter().map(|route| route.clients).enumerate().flat_map(of).collect();
    // So many permits need many requests.
    targets.extend([(1, 0); 30]);
    targets.sort_by_key(|(route, client)| (usize::from(*route) * 7 + usize::from(*client) * 13) % 31);
    targets
}

/// The status of an answer; 0 if there was none. If nobody listens, a gateway is restarting: tries again, as nothing was sent.
async fn status(stream: &mut Option<TcpStream>, gateway: SocketAddr, path: &str, client: u8) -> u16 {
    let fields = format!("k: client-{client}\r\n");
    let answered = async {
        loop {
            match ask(stream, gateway, path, &fields).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(RETRY).await,
                answer => return answer,
            }
        }
    };
    timeout(PATIENCE, answered).await.map_or(0, |answer| answer.map_or(0, |(status, _)| status))
}
