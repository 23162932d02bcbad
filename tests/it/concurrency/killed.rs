//! Three gateways share a bound in Redis, and one of them is killed: the upstream never has more requests than the bound
//! allows, and the slots of the killed gateway are free after at most 10 s of Redis's clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deadpool_redis::redis::{Commands, cmd};
use tokio::time::Instant;

use crate::support::gateway::TestGateway;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;

use super::upstream_load::{Load, hold, send_all, until, upstream};

const MAX: usize = 10;
/// The requests that the killed gateway holds.
const HELD: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_killed_gateway_are_free_within_10_seconds() {
    let Some(redis) = RedisServer::start() else { return };
    let load = Arc::new(Load::default());
    let upstream = upstream(&load).await;
    let rules = format!(
        "store: {}\nupstreams: {{ api: {{ targets: 'http://{}', retry: off, eject: off }} }}\nroutes:\n\
         - {{ name: all, match: {{}}, upstream: api, concurrency: {{ max: {MAX}, queue: 30, max_wait: 20s }} }}",
        redis.rule(),
        upstream.address
    );
    let file = RuleFile::new("killed-concurrency", &format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{rules}"));
    let (killed, killed_address, _) = Program::run(&file, &[]);
    let gateways = [TestGateway::start(&rules), TestGateway::start(&rules)];
    let (one, other) = (gateways[0].address, gateways[1].address);

    let admitted = send_all(&[one, other, killed_address]).await;
    let (peak, now) = (load.peak.load(Ordering::SeqCst), load.now.load(Ordering::SeqCst));
    assert!(peak <= MAX && now == 0, "{peak} and {now} of {admitted} requests");

    let mut held = Vec::new();
    for _ in 0..HELD {
        held.push(hold(killed_address, &load).await);
    }
    let killed_at = Instant::now();
    killed.signal("KILL");
    killed.wait_for_exit();
    let (ends, now) = ends_of_leases(&redis);
    assert!(ends.len() >= HELD && ends.iter().all(|end| *end <= now + 9_000), "{ends:?} at {now}");
    until(&load, |load| load.held.load(Ordering::SeqCst) == 0).await;

    // The slots of the killed gateway are not free yet: the others can hold only the rest.
    load.peak.store(0, Ordering::SeqCst);
    send_all(&[one, other]).await;
    assert!(load.peak.load(Ordering::SeqCst) <= MAX - HELD);
    let mut held = Vec::new();
    for _ in 0..MAX - HELD {
        held.push(hold(one, &load).await);
    }
    for _ in 0..HELD {
        held.push(hold(other, &load).await); // waits for its slot
    }
    assert_eq!(load.peak.load(Ordering::SeqCst), MAX);

    // Held slots outlive their first lease.
    let until = killed_at + Duration::from_secs(14);
    assert_eq!(try_until(other, until).await, 0, "a slot was free");
    assert_eq!(load.peak.load(Ordering::SeqCst), MAX);
}

/// Returns when the leases end, and the present time, in milliseconds of Redis's clock.
fn ends_of_leases(redis: &RedisServer) -> (Vec<u64>, u64) {
    let mut connection = redis.connection();
    let leases: Vec<(String, u64)> =
        connection.zrange_withscores("{tidegate:all}:@in_flight", 0, -1).expect("a sorted set");
    let (seconds, micros): (u64, u64) = cmd("TIME").query(&mut connection).expect("a time");
    (leases.into_iter().map(|(_, end)| end).collect(), seconds * 1_000 + micros / 1_000)
}

/// Sends a request. Returns 1 if it is admitted before this time, and 0 otherwise.
async fn try_until(gateway: SocketAddr, until: Instant) -> usize {
    let mut client = Raw::connect(gateway).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    usize::from(tokio::time::timeout_at(until, client.head()).await.is_ok())
}
