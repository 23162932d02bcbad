//! A client over its limit and others, on two gateways with one limit of all clients: it delays the others by no more than
//! the permits that it was granted. One gateway is farther from Redis, and its connections to Redis are closed once.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client::get;
use super::gateway::Gateway;
use super::journal;
use super::proxy::FaultyProxy;
use super::redis::RedisServer;

/// Permits of all clients in a second.
const RATE: usize = 40;
const MEASURED: Duration = Duration::from_secs(4);
/// Connections to each gateway.
const GREEDY: usize = 40;
const HONEST: usize = 6;
/// A greedy client that has been rejected repeats its request after this time.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest delay by other causes: a busy machine, and the closed connections.
const SLACK: Duration = Duration::from_millis(1_500);

/// The responses to some clients.
#[derive(Default)]
struct Responses {
    admitted: usize,
    rejected: usize,
    slowest: Duration,
}

/// The responses to the greedy client and to the others.
pub struct LawReport {
    greedy: Responses,
    honest: Responses,
}

/// Runs the clients. Returns `None` if Redis is not installed.
pub fn measure(deadline: u64) -> Option<LawReport> {
    let folder = std::env::temp_dir().join(format!("tidegate-law-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let redis = RedisServer::start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let report = runtime.block_on(async {
        let proxy = FaultyProxy::start(redis.port).await;
        proxy.delay(5, 5);
        let gateways: Vec<Gateway> = [redis.port, proxy.port]
            .into_iter()
            .map(|port| {
                let rules = folder.join(format!("law-{port}.yaml"));
                fs::write(&rules, rule_file(port, deadline)).expect("written");
                Gateway::start(&rules, journal::start().0)
            })
            .collect();
        let addresses = gateways.iter().map(|gateway| gateway.address);
        let clients = run_clients(addresses);
        let fault = async {
            sleep(MEASURED / 2).await;
            proxy.cut();
            proxy.heal();
            proxy.delay(5, 5);
        };
        tokio::join!(clients, fault).0
    });
    fs::remove_dir_all(&folder).expect("removed");
    Some(report)
}

async fn run_clients(gateways: impl Iterator<Item = SocketAddr>) -> LawReport {
    let (greedy, honest) = (Arc::<Mutex<Responses>>::default(), Arc::<Mutex<Responses>>::default());
    let (mut limited, mut clients) = (JoinSet::new(), JoinSet::new());
    for (number, gateway) in gateways.enumerate() {
        for _ in 0..GREEDY {
            limited.spawn(run_client(gateway, |_| "greedy".to_owned(), Arc::clone(&greedy)));
        }
        for client in 0..HONEST {
            let key = move |request| format!("honest-{number}-{client}-{request}");
            clients.spawn(run_client(gateway, key, Arc::clone(&honest)));
        }
    }
    clients.join_all().await;
    // Its last requests would wait for long.
    limited.abort_all();
    let [greedy, honest] = [greedy, honest].map(|responses| std::mem::take(&mut *responses.lock()));
    LawReport { greedy, honest }
}

/// Sends requests one after the other, with a key for each.
async fn run_client(gateway: SocketAddr, key: impl Fn(usize) -> String, responses: Arc<Mutex<Responses>>) {
    let (until, mut stream) = (Instant::now() + MEASURED, None);
    for number in 0.. {
        let began = Instant::now();
        if began >= until {
            return;
        }
        let (status, _) = get(&mut stream, gateway, "/", &format!("k: {}\r\n", key(number))).await.expect("a response");
        responses.lock().add(status, began.elapsed());
        if status != 200 {
            sleep(PAUSE).await;
        }
    }
}

fn rule_file(port: u16, deadline: u64) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: off
store: {{ url: 'redis://127.0.0.1:{port}', timeout: {deadline}ms }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
limits:
  all: {{ mode: OVERALL, rate: {RATE}, interval: 1s, algorithm: gcra, burst: 4, max_wait: 1m, queue: 1000 }}
routes:
  - name: law
    match: {{}}
    upstream: echo
    concurrency: {{ max: 20 }}
    limits:
      - all
      - {{ name: own, mode: PER_CLIENT, client: 'header:k', rate: 2, interval: 1s, max_wait: 1m, queue: 30 }}\n"
    )
}

impl Responses {
    fn add(&mut self, status: u16, took: Duration) {
        *(if status == 200 { &mut self.admitted } else { &mut self.rejected }) += 1;
        self.slowest = self.slowest.max(took);
    }
}

impl LawReport {
    /// Returns everything that makes the run fail.
    pub fn failures(&self) -> Vec<String> {
        let Self { greedy, honest } = self;
        let seconds = usize::try_from(MEASURED.as_secs()).expect("seconds");
        // The others wait all the time, so they get every permit that the greedy client does not get.
        let least = (RATE * seconds * 4 / 5).saturating_sub(greedy.admitted);
        let longest = Duration::from_secs(1) * u32::try_from(2 * HONEST + greedy.admitted).expect("few") / 40 + SLACK;
        let checks = [
            (honest.rejected > 0, format!("law: {} requests of others rejected", honest.rejected)),
            (honest.admitted < least, format!("law: {} instead of {least} requests of others", honest.admitted)),
            (honest.slowest > longest, format!("law: a request of others took {:?}", honest.slowest)),
            (greedy.rejected == 0, "law: the greedy client was not over its limit".to_owned()),
        ];
        checks.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, failure)| failure).collect()
    }
}

impl fmt::Display for LawReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A client over its limit and others, on two gateways, for {} s:\n", MEASURED.as_secs())?;
        writeln!(f, "| clients | admitted | rejected | slowest |")?;
        writeln!(f, "|---|--:|--:|--:|")?;
        for (name, responses) in [("over its limit", &self.greedy), ("others", &self.honest)] {
            let Responses { admitted, rejected, slowest } = responses;
            writeln!(f, "| {name} | {admitted} | {rejected} | {:.0} ms |", slowest.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}
