//! A handover to another process: requests of both processes share the slots in Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::handover::Socket;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;

use super::upstream_load::{Load, hold, send_all, until, upstream};

const MAX: usize = 6;
/// The requests that the old process holds until the end of its drain.
const HELD: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_handover_share_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let load = Arc::new(Load::default());
    let upstream = upstream(&load).await;
    let rules = |listen: &str, admin: &str| {
        format!(
            "listen: {listen}\nadmin: {admin}\nstore: {}\n\
             upstreams: {{ api: {{ targets: 'http://{}', retry: off, eject: off }} }}\nroutes:\n\
             - {{ name: all, match: {{}}, upstream: api, concurrency: {{ max: {MAX}, queue: 30, max_wait: 6s }} }}",
            redis.rule().replace("2s", "10s"), // a timeout would let each process use a share of the bound
            upstream.address
        )
    };
    let (socket, first) = (Socket::new("slots"), RuleFile::new("slots-first", &rules("127.0.0.1:0", "127.0.0.1:0")));
    let arguments = ["--handover", socket.path(), "--drain-timeout", "60"];
    let (old, gateway, admin) = Program::run(&first, &arguments);
    let held = [hold(gateway, &load).await, hold(gateway, &load).await];
    assert_eq!(held.len(), HELD);

    // Load begins before the handover, and continues while the old process drains.
    let sending = tokio::spawn(async move { send_for_three_seconds(gateway).await });
    until(&load, |load| load.peak.load(Ordering::SeqCst) > HELD).await;
    let next = RuleFile::new("slots-next", &rules(&gateway.to_string(), &admin.to_string()));
    let (_new, ..) = Program::run(&next, &arguments);
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
    drop(held);
    until(&load, |load| load.held.load(Ordering::SeqCst) == MAX - HELD).await;
    for _ in 0..HELD {
        others.push(hold(gateway, &load).await);
    }
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
}

/// While Redis does not reply, the old process drains with a quarter of the bound, and the new one has the rest.
/// Regression test: the new process used the whole bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_handover_divide_the_bound_in_an_outage() {
    const MAX: usize = 4 * HELD;
    let Some(redis) = RedisServer::start() else { return };
    let load = Arc::new(Load::default());
    let upstream = upstream(&load).await;
    let rules = |listen: &str, admin: &str| {
        format!(
            "listen: {listen}\nadmin: {admin}\nstore: {}\n\
             upstreams: {{ api: {{ targets: 'http://{}', retry: off, eject: off }} }}\nroutes:\n\
             - {{ name: all, match: {{}}, upstream: api, concurrency: {{ max: {MAX} }} }}",
            redis.rule(),
            upstream.address
        )
    };
    let (socket, first) = (Socket::new("parts"), RuleFile::new("parts-first", &rules("127.0.0.1:0", "127.0.0.1:0")));
    let arguments = ["--handover", socket.path(), "--drain-timeout", "60"];
    let (old, gateway, admin) = Program::run(&first, &arguments);
    let held = [hold(gateway, &load).await, hold(gateway, &load).await];
    let next = RuleFile::new("parts-next", &rules(&gateway.to_string(), &admin.to_string()));
    drop(redis);
    let (_new, ..) = Program::run(&next, &arguments);
    let mut others = Vec::new();
    for _ in 0..MAX - HELD {
        others.push(hold(gateway, &load).await);
    }
    let ask = async || Raw::connect(gateway).await.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status();
    assert_eq!((ask().await, load.peak.load(Ordering::SeqCst)), (503, MAX));

    drop(held);
    assert!(old.wait_for_exit().0.success());
    // The new process notices the end of the old one.
    while ask().await == 503 {
        tokio::task::yield_now().await;
    }
    for _ in 0..HELD {
        others.push(hold(gateway, &load).await);
    }
    assert_eq!((ask().await, load.peak.load(Ordering::SeqCst)), (503, MAX));
}

/// Sends requests, with new connections every second, so that the new process gets some.
async fn send_for_three_seconds(gateway: std::net::SocketAddr) {
    for _ in 0..3 {
        assert!(send_all(&[gateway]).await > 0);
    }
}
