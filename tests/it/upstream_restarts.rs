//! Upstreams that restart under load, and clients that leave: each request is charged exactly if a target may have
//! received it, and nothing stays behind.
//!
//! `REQUESTS=100000 PERIOD_MS=1000 cargo test --test it -- upstream_restarts --nocapture` is the long form.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::Raw;
use crate::support::wire::until_within;
use crate::support::wire::upstream::Origin;

const CLIENTS: usize = 24;
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How long a restarting upstream refuses connections.
const DOWN: Duration = Duration::from_millis(50);

/// The most memory that the gateway may occupy in addition after the first fifth of the requests, in bytes.
const MAX_GROWTH: usize = 12 * 1024 * 1024;

/// The requests that the upstreams have received, by id.
type Received = Arc<Mutex<HashSet<String>>>;

/// The results of all clients.
#[derive(Default)]
struct Results {
    next: AtomicU64,
    /// The requests whose response says that no target received them.
    refunded: Mutex<Vec<String>>,
    /// The requests whose client left without reading the response.
    aborted: Mutex<Vec<String>>,
    statuses: Mutex<HashMap<u16, u64>>,
}

/// An upstream that restarts: every `period` it ends all of its connections, and listens again after `DOWN`.
async fn restart_for_ever(mut listener: TcpListener, period: Duration, received: Received) {
    let address = listener.local_addr().expect("an address");
    loop {
        let mut connections = JoinSet::new();
        let serve = async {
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(Raw::new(stream), received.clone()));
            }
        };
        _ = timeout(period, serve).await;
        drop((listener, connections));
        sleep(DOWN).await;
        listener = TcpListener::bind(address).await.expect("the same address");
    }
}

async fn serve(mut connection: Raw, received: Received) {
    while let Ok(request) = connection.try_message(false, false).await {
        received.lock().extend(request.field("x-request-id"));
        connection.send(OK).await;
    }
}

impl Results {
    /// Sends requests until `total` have been sent.
    async fn load(self: Arc<Self>, address: SocketAddr, total: u64) {
        let mut client = Raw::connect(address).await;
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= total {
                return;
            }
            let id = format!("n{number}");
            let path = if number % 100 == 50 { "/gone" } else { "/" };
            let (method, body) = if number % 10 == 3 { ("POST", "body") } else { ("GET", "") };
            let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\n");
            client.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
            if number.is_multiple_of(100) {
                client = Raw::connect(address).await;
                self.aborted.lock().push(id);
                continue;
            }
            let response = client.response(false).await;
            *self.statuses.lock().entry(response.status()).or_default() += 1;
            if response.text().contains("the upstream cannot be reached") {
                self.refunded.lock().push(id);
            }
        }
    }
}

async fn used(admin: SocketAddr, route: &str) -> u64 {
    let request = format!("GET /api/v1/limits/{route}/total/client HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text = Raw::connect(admin).await.ask(request).await.text();
    let state: Value = serde_json::from_str(&text).expect("JSON");
    state["used"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "a long run shows its figures")]
async fn aborts_and_restarts_leave_nothing_behind() {
    let (total, period) = (number("REQUESTS", 4_000), Duration::from_millis(number("PERIOD_MS", 200)));
    let (received, mut upstreams, mut targets) = (Received::default(), JoinSet::new(), Vec::new());
    for number in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        targets.push(format!("http://{}", listener.local_addr().expect("an address")));
        upstreams.spawn(restart_for_ever(listener, period + period / 3 * number, received.clone()));
    }
    let limit = "limits: [{ name: total, mode: OVERALL, rate: 10000000, interval: 1h }]";
    let file = RuleFile::new(
        "upstream-restarts",
        &format!(
            "listen: {{ address: 127.0.0.1:0, max_requests: 1000000 }}
admin: 127.0.0.1:0
access_log: off
clients: {{ trusted_proxies: [127.0.0.1] }}
requests: {{ request_id: true }}
upstreams:
  api: {{ targets: ['{}'] }}
  gone: {{ targets: ['http://{}'], eject: off }}
routes:
  - {{ name: gone, match: {{ path: /gone }}, upstream: gone, {limit} }}
  - {{ name: all, match: {{ path: /** }}, upstream: api, {limit} }}\n",
            targets.join("', '"),
            Origin::closed_port()
        ),
    );
    let (program, address, admin) =
        Program::run(&file, &["--workers", "2", "--log", "info,tidegate_proxy::upstream=off"]);
    assert_eq!(get(&mut Raw::connect(admin).await, "/readyz", "").await.status(), 200);
    let before = program.descriptors();

    let (results, mut clients) = (Arc::new(Results::default()), JoinSet::new());
    for _ in 0..CLIENTS {
        clients.spawn(Arc::clone(&results).load(address, total));
    }
    until_within(Duration::from_secs(60), || results.next.load(Ordering::SeqCst) >= total / 5).await;
    let memory = program.memory();
    while let Some(ended) = clients.join_next().await {
        ended.expect("each response is well formed");
    }
    let grown = program.memory().saturating_sub(memory);
    // The gateway closes idle connections to upstreams after a few seconds.
    until_within(Duration::from_secs(60), || program.descriptors() <= before).await;
    assert!(grown < MAX_GROWTH, "grew from {memory} by {grown} bytes");

    let received = received.lock().clone();
    let refunded: HashSet<_> = results.refunded.lock().iter().cloned().collect();
    assert_eq!(refunded.intersection(&received).collect::<Vec<_>>(), Vec::<&String>::new(), "refunded, but received");
    assert!(refunded.len() as u64 >= total / 100, "{}", refunded.len());
    // A client that leaves may do so before or after the gateway has decided, sent or refunded its request.
    let uncertain = results.aborted.lock().iter().filter(|id| !received.contains(*id)).count() as u64;
    let used = used(admin, "all").await + used(admin, "gone").await;
    let most = total - refunded.len() as u64;
    assert!((most - uncertain..=most).contains(&used), "{used} permits in use, at most {most}, {uncertain} uncertain");
    println!(
        "{total} requests, {:?}, {} refunded, {} aborted ({uncertain} of them not received), {used} permits in use, \
         {memory} bytes of memory, later {grown} more",
        results.statuses.lock(),
        refunded.len(),
        results.aborted.lock().len()
    );
}
