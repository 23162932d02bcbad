//! A handover to another process: requests of both processes share the slots in Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use deadpool_redis::redis::cmd;

use crate::handover::Socket;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::Origin;

use super::upstream_load::{Load, hold, hold_when_admitted, send_all, until, upstream};

const MAX: usize = 6;
/// The requests that the old process holds until the end of its drain.
const HELD: usize = 2;

/// The first process of a handover, in which clients hold requests.
struct First {
    name: &'static str,
    /// The value of `store`, and of the route's `concurrency`.
    store: String,
    concurrency: String,
    load: Arc<Load>,
    upstream: Origin,
    socket: Socket,
    _file: RuleFile,
    program: Program,
    gateway: SocketAddr,
    admin: SocketAddr,
    held: [Raw; HELD],
}

impl First {
    async fn start(name: &'static str, store: String, concurrency: String) -> Self {
        let (load, socket) = (Arc::<Load>::default(), Socket::new(name));
        let upstream = upstream(&load).await;
        let rules = rules(["127.0.0.1:0"; 2], &store, &upstream, &concurrency);
        let file = RuleFile::new(&format!("{name}-first"), &rules);
        let (program, gateway, admin) = Program::run(&file, &arguments(&socket));
        let held = [hold(gateway, &load).await, hold(gateway, &load).await];
        Self { name, store, concurrency, load, upstream, socket, _file: file, program, gateway, admin, held }
    }

    /// Starts the next process, which has the same rules.
    fn start_next(&self) -> (Program, RuleFile) {
        let addresses = [self.gateway.to_string(), self.admin.to_string()];
        let rules = rules(addresses.each_ref().map(String::as_str), &self.store, &self.upstream, &self.concurrency);
        let file = RuleFile::new(&format!("{}-next", self.name), &rules);
        (Program::run(&file, &arguments(&self.socket)).0, file)
    }
}

fn arguments(socket: &Socket) -> [&str; 4] {
    ["--handover", socket.path(), "--drain-timeout", "60"]
}

fn rules([listen, admin]: [&str; 2], store: &str, upstream: &Origin, concurrency: &str) -> String {
    format!(
        "listen: {listen}\nadmin: {admin}\nstore: {store}\n\
         upstreams: {{ api: {{ targets: 'http://{}', retry: off, eject: off }} }}\nroutes:\n\
         - {{ name: all, match: {{}}, upstream: api, concurrency: {concurrency} }}",
        upstream.address
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_handover_share_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.rule().replace("2s", "10s"); // a timeout would let each process use a share of the bound
    let first = First::start("slots", store, format!("{{ max: {MAX}, queue: 30, max_wait: 6s }}")).await;
    let (load, gateway) = (Arc::clone(&first.load), first.gateway);

    // Load begins before the handover, and continues while the old process drains.
    let sending = tokio::spawn(async move { send_for_three_seconds(gateway).await });
    until(&load, |load| load.peak.load(Ordering::SeqCst) > HELD).await;
    let _next = first.start_next();
    sending.await.expect("responses");
    let (peak, held_now) = (load.peak.load(Ordering::SeqCst), load.held.load(Ordering::SeqCst));
    assert!(peak <= MAX && held_now == HELD, "{peak} at once, {held_now} held");

    // The old process renews its leases, which last 9 s: two requests are rejected after 6 s each.
    let mut others = Vec::new();
    for _ in 0..MAX - HELD {
        others.push(hold(gateway, &load).await);
    }
    for _ in 0..2 {
        let response = Raw::connect(gateway).await.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(response.status(), 503);
    }
    assert_eq!((load.peak.load(Ordering::SeqCst), load.held.load(Ordering::SeqCst)), (MAX, MAX));

    // The slots of the old process are free when its requests have ended.
    drop(first.held);
    until(&load, |load| load.held.load(Ordering::SeqCst) == MAX - HELD).await;
    for _ in 0..HELD {
        others.push(hold(gateway, &load).await);
    }
    let (status, log) = first.program.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
}

/// While Redis does not reply, the old process drains with a quarter of the bound, and the new one has the rest.
/// Regression test: the new process used the whole bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_handover_divide_the_bound_in_an_outage() {
    const MAX: usize = 4 * HELD;
    let Some(redis) = RedisServer::start() else { return };
    let first = First::start("parts", redis.rule(), format!("{{ max: {MAX} }}")).await;
    let (load, gateway) = (Arc::clone(&first.load), first.gateway);
    drop(redis);
    let _next = first.start_next();
    // The old process may accept some of these, and rejects them because it has more than its quarter in flight.
    let mut others = Vec::new();
    for _ in 0..MAX - HELD {
        others.push(hold_when_admitted(gateway, &load).await);
    }
    let ask = async || Raw::connect(gateway).await.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status();
    assert_eq!((ask().await, load.peak.load(Ordering::SeqCst)), (503, MAX));

    drop(first.held);
    assert!(first.program.wait_for_exit().0.success());
    until(&load, |load| load.held.load(Ordering::SeqCst) == MAX - HELD).await;
    // The new process has the whole bound when it notices the end of the old one.
    for _ in 0..HELD {
        others.push(hold_when_admitted(gateway, &load).await);
    }
    assert_eq!((ask().await, load.peak.load(Ordering::SeqCst)), (503, MAX));
}

/// Regression test: the runtime ended before it released the slots of the last requests, which stayed taken for up to 9 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exiting_gateway_releases_its_slots() {
    // So many that not all are released by the call that the first one causes.
    const MORE: usize = 100;
    let Some(redis) = RedisServer::start() else { return };
    let first = First::start("exit", redis.rule(), "{ max: 200 }".to_owned()).await;
    let mut others = Vec::new();
    for _ in 0..MORE {
        others.push(hold(first.gateway, &first.load).await);
    }
    let leases = || {
        let mut leases = cmd("ZCARD");
        leases.arg("{tidegate:all}:@in_flight").query::<usize>(&mut redis.connection()).expect("a number")
    };
    assert_eq!(leases(), HELD + MORE);
    first.program.signal("TERM");
    // Redis replies only after all requests have ended.
    redis.signal("STOP");
    drop((first.held, others));
    until(&first.load, |load| load.held.load(Ordering::SeqCst) == 0).await;
    redis.signal("CONT");
    assert!(first.program.wait_for_exit().0.success());
    assert_eq!(leases(), 0);
}

/// Sends requests, with new connections every second, so that the new process gets some.
async fn send_for_three_seconds(gateway: SocketAddr) {
    for _ in 0..3 {
        assert!(send_all(&[gateway]).await > 0);
    }
}
