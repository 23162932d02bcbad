//! Clients that exceed their limits: keep-alive connections, spread over the gateways, at a fixed request rate.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::Clock;
use tidegate_limit::clock::{Stopwatch, SystemClock};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::client::get;
use super::journal::{DecidedBy, Journal, Record};
use super::table::ROUTES;

/// After this time the client gives up.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// The pause between attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

const CONNECTIONS: usize = 64;

/// A running load.
pub struct Load {
    clients: JoinSet<()>,
    is_stopping: Arc<AtomicBool>,
}

/// The state that all clients share.
struct Clients {
    gateways: Vec<SocketAddr>,
    journal: Journal,
    clock: SystemClock,
    next_id: AtomicU64,
    is_stopping: Arc<AtomicBool>,
}

/// The index of a route and the number of a client.
type Target = (u8, u8);

impl Load {
    /// Starts connections that together send `rate` requests per second.
    pub fn start(gateways: Vec<SocketAddr>, rate: u32, journal: Journal) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let interval = Duration::from_secs(1) * u32::try_from(CONNECTIONS).expect("a number") / rate;
        let (clock, next_id) = (SystemClock::new(), AtomicU64::new(1));
        let shared = Arc::new(Clients { gateways, journal, clock, next_id, is_stopping: Arc::clone(&is_stopping) });
        let mut clients = JoinSet::new();
        for number in 0..CONNECTIONS {
            clients.spawn(Arc::clone(&shared).run_connection(number, interval));
        }
        Self { clients, is_stopping }
    }

    /// Stops the load and waits for outstanding responses.
    pub async fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
    }
}

impl Clients {
    async fn run_connection(self: Arc<Self>, number: usize, period: Duration) {
        let gateway = number % self.gateways.len();
        let (mut ticks, mut stream, targets) = (interval(period), None, targets());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for index in number.. {
            ticks.tick().await;
            if self.is_stopping.load(Ordering::Relaxed) {
                return;
            }
            let (route, client) = targets[index % targets.len()];
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let (begin, watch) = (self.clock.now().as_millis(), Stopwatch::start());
            let path = format!("/{}/{id}", ROUTES[usize::from(route)].name);
            let status = status(&mut stream, self.gateways[gateway], &path, client).await;
            let (took, end) = (watch.elapsed(), self.clock.now().as_millis());
            let gateway = u8::try_from(gateway).expect("few gateways");
            let decided_by = DecidedBy::Unknown;
            self.journal.record_response(id, Record { begin, end, took, status, gateway, route, client, decided_by });
        }
    }
}

/// Returns each route once per client, in a scattered order, so that the request rate does not fall in step with it.
fn targets() -> Vec<Target> {
    let of_route = |(route, clients): (usize, usize)| {
        (0..clients.max(2)).map(move |client| (u8::try_from(route).unwrap(), u8::try_from(client % clients).unwrap()))
    };
    let mut targets: Vec<Target> = ROUTES.iter().map(|route| route.clients).enumerate().flat_map(of_route).collect();
    // The limit of route 1 is high: it takes many requests to reach it.
    targets.extend([(1, 0); 30]);
    targets.sort_by_key(|(route, client)| (usize::from(*route) * 7 + usize::from(*client) * 13) % 31);
    targets
}

/// Sends a request. Returns the status, or 0 if there was no response. Retries while the connection is refused, because
/// then a gateway is restarting and nothing was sent.
async fn status(stream: &mut Option<TcpStream>, gateway: SocketAddr, path: &str, client: u8) -> u16 {
    let fields = format!("k: client-{client}\r\n");
    let response = async {
        loop {
            match get(stream, gateway, path, &fields).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(RETRY_PAUSE).await,
                result => return result,
            }
        }
    };
    timeout(RESPONSE_TIMEOUT, response).await.map_or(0, |result| result.map_or(0, |(status, _)| status))
}
