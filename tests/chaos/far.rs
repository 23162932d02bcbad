//! A Redis that is far away: how many requests are decided, and how long they take, by the time there and back and the deadline.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate::clock::Stopwatch;
use tokio::task::JoinSet;

use super::client::ask;
use super::gateway::Gateway;
use super::journal;
use super::proxy::FaultyProxy;
use super::redis::RedisServer;

const CLIENTS: usize = 64;
const FOR: Duration = Duration::from_secs(4);

/// Milliseconds there and back, and of the deadline.
const CASES: [(u64, u64); 9] =
    [(0, 50), (5, 50), (20, 50), (20, 100), (50, 50), (50, 150), (50, 250), (100, 300), (100, 500)];

/// What was measured.
pub struct Far(Vec<Row>);

struct Row {
    round_trip: u64,
    deadline: u64,
    took: Vec<Duration>,
    by_store: f64,
    alone: f64,
    calls: f64,
}

/// Asks gateways, one after the other, each as fast as it answers so many clients; nothing where there is no Redis.
pub fn measure() -> Option<Far> {
    let folder = std::env::temp_dir().join(format!("tidegate-far-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let redis = RedisServer::start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let row = |(round_trip, deadline)| runtime.block_on(row(&folder, redis.port, round_trip, deadline));
    let far = Far(CASES.into_iter().map(row).collect());
    fs::remove_dir_all(&folder).expect("removed");
    Some(far)
}

async fn row(folder: &Path, redis: u16, round_trip: u64, deadline: u64) -> Row {
    let proxy = FaultyProxy::start(redis).await;
    proxy.delay(round_trip, round_trip);
    let rules = folder.join(format!("far-{round_trip}-{deadline}.yaml"));
    fs::write(&rules, rule_file(proxy.port, deadline)).expect("written");
    let (journal, _) = journal::begin();
    let mut gateway = Gateway::start(&rules, journal);
    // What is measured is a gateway that has been there for a while.
    clients(gateway.address, Duration::from_secs(2)).await;
    let before = counters(&mut gateway).await;
    let took = clients(gateway.address, FOR).await;
    let after = counters(&mut gateway).await;
    let [by_store, alone, calls] = [0, 1, 2].map(|one: usize| after[one] - before[one]);
    Row { round_trip, deadline, took, by_store, alone, calls }
}

async fn counters(gateway: &mut Gateway) -> [f64; 3] {
    let decided = |outcome| format!(r#"tidegate_decisions_total{{route="far",limit="l",outcome="{outcome}"}}"#);
    let (by_store, alone) = (decided("allowed"), decided("store_failed"));
    [
        gateway.counter(&by_store).await,
        gateway.counter(&alone).await,
        gateway.counter("tidegate_store_calls_total").await,
    ]
}

/// Each asks again as soon as it is answered; returns how long each answer took.
async fn clients(gateway: SocketAddr, lasts: Duration) -> Vec<Duration> {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(async move {
            let (since, mut stream, mut took) = (Stopwatch::start(), None, Vec::new());
            while since.elapsed() < lasts {
                let watch = Stopwatch::start();
                let answer = ask(&mut stream, gateway, "/far/0", &format!("k: client-{number}\r\n")).await;
                assert_eq!(answer.expect("an answer").0, 200);
                took.push(watch.elapsed());
            }
            took
        });
    }
    clients.join_all().await.concat()
}

fn rule_file(port: u16, deadline: u64) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: off
store: {{ url: 'redis://127.0.0.1:{port}', timeout: {deadline}ms }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - name: far
    match: {{ path: /** }}
    upstream: echo
    limits: [{{ name: l, mode: PER_CLIENT, client: 'header:k', rate: 1000000, interval: 1s, on_store_failure: allow }}]\n"
    )
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| there and back | `timeout` | decided a second by Redis | without it | requests in a call | p50 | p99 |"
        )?;
        writeln!(f, "|--:|--:|--:|--:|--:|--:|--:|")?;
        for Row { round_trip, deadline, took, by_store, alone, calls } in &self.0 {
            let mut took = took.clone();
            took.sort_unstable();
            let percentile =
                |percent: usize| took.get(took.len() * percent / 100).map_or(0.0, Duration::as_secs_f64) * 1e3;
            let a_second = |count: &f64| count / FOR.as_secs_f64();
            let (by_store_a_second, alone) = (a_second(by_store), a_second(alone));
            let (in_a_call, p50, p99) = (by_store / calls.max(1.0), percentile(50), percentile(99));
            writeln!(
                f,
                "| {round_trip} ms | {deadline} ms | {by_store_a_second:.0} | {alone:.0} | {in_a_call:.1} | {p50:.1} ms | {p99:.1} ms |"
            )?;
        }
        Ok(())
    }
}
