//! Measures a Redis that is far away: throughput and latency for several round trip times and deadlines.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_limit::clock::Stopwatch;
use tokio::task::JoinSet;

use super::client::get;
use super::gateway::Gateway;
use super::journal;
use super::proxy::FaultyProxy;
use super::redis::RedisServer;

const CLIENTS: usize = 64;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);

/// Round trip times and deadlines, in milliseconds.
const CASES: [(u64, u64); 9] =
    [(0, 50), (5, 50), (20, 50), (20, 100), (50, 50), (50, 150), (50, 250), (100, 300), (100, 500)];

/// One measurement for each of the [`CASES`].
pub struct LatencyReport(Vec<Row>);

struct Row {
    round_trip: u64,
    deadline: u64,
    response_times: Vec<Duration>,
    /// Decisions by Redis, decisions by the gateway, and calls to Redis.
    by_store: f64,
    local: f64,
    calls: f64,
}

/// Measures all cases, one gateway at a time. Returns `None` if Redis is not installed.
pub fn measure() -> Option<LatencyReport> {
    let folder = std::env::temp_dir().join(format!("tidegate-far-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let redis = RedisServer::start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let row = |(round_trip, deadline)| runtime.block_on(row(&folder, redis.port, round_trip, deadline));
    let report = LatencyReport(CASES.into_iter().map(row).collect());
    fs::remove_dir_all(&folder).expect("removed");
    Some(report)
}

async fn row(folder: &Path, redis: u16, round_trip: u64, deadline: u64) -> Row {
    let proxy = FaultyProxy::start(redis).await;
    proxy.delay(round_trip, round_trip);
    let rules = folder.join(format!("far-{round_trip}-{deadline}.yaml"));
    fs::write(&rules, rule_file(proxy.port, deadline)).expect("written");
    let (journal, _) = journal::start();
    let mut gateway = Gateway::start(&rules, journal);
    run_clients(gateway.address, WARM_UP).await;
    let before = counters(&mut gateway).await;
    let response_times = run_clients(gateway.address, MEASURED).await;
    let after = counters(&mut gateway).await;
    let [by_store, local, calls] = [0, 1, 2].map(|index: usize| after[index] - before[index]);
    Row { round_trip, deadline, response_times, by_store, local, calls }
}

async fn counters(gateway: &mut Gateway) -> [f64; 3] {
    let decided = |outcome| format!(r#"tidegate_decisions_total{{route="far",limit="l",outcome="{outcome}"}}"#);
    let (by_store, local) = (decided("allowed"), decided("store_failed"));
    [
        gateway.counter(&by_store).await,
        gateway.counter(&local).await,
        gateway.counter("tidegate_store_calls_total").await,
    ]
}

/// Runs clients that send the next request as soon as they have a response. Returns the response times.
async fn run_clients(gateway: SocketAddr, duration: Duration) -> Vec<Duration> {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(async move {
            let (since, mut stream, mut response_times) = (Stopwatch::start(), None, Vec::new());
            while since.elapsed() < duration {
                let watch = Stopwatch::start();
                let response = get(&mut stream, gateway, "/far/0", &format!("k: client-{number}\r\n")).await;
                assert_eq!(response.expect("a response").0, 200);
                response_times.push(watch.elapsed());
            }
            response_times
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

impl fmt::Display for LatencyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| round trip | `timeout` | decisions per second by Redis | by the gateway | requests per call | p50 | p99 |"
        )?;
        writeln!(f, "|--:|--:|--:|--:|--:|--:|--:|")?;
        for Row { round_trip, deadline, response_times, by_store, local, calls } in &self.0 {
            let mut sorted = response_times.clone();
            sorted.sort_unstable();
            let percentile =
                |percent: usize| sorted.get(sorted.len() * percent / 100).map_or(0.0, Duration::as_secs_f64) * 1e3;
            let per_second = |count: &f64| count / MEASURED.as_secs_f64();
            let (by_store_rate, local_rate) = (per_second(by_store), per_second(local));
            let (per_call, p50, p99) = (by_store / calls.max(1.0), percentile(50), percentile(99));
            writeln!(
                f,
                "| {round_trip} ms | {deadline} ms | {by_store_rate:.0} | {local_rate:.0} | {per_call:.1} | {p50:.1} ms | {p99:.1} ms |"
            )?;
        }
        Ok(())
    }
}
