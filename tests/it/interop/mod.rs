//! Java services, two gateways and the library share limiters in one Redis. `tests/interop/run` downloads Redisson and
//! sets `REDISSON` to its folder. Without the variable these tests do nothing.

mod checker;
mod java;

use std::path::PathBuf;
use std::time::Duration;

use tidegate::Clock;
use tidegate::redisson::{Mode, PermitsInUse, RateConfig, RateLimiter, TrySetRate};
use tidegate_limit::clock::SystemClock;

use self::checker::{Grant, fullest_window};
use self::java::Java;
use crate::support::gateway::{TestGateway, get};
use crate::support::granted;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

const HOUR: u64 = 3_600_000;

/// The programs that share the limiters.
struct Peers {
    java: Java,
    other: Java,
    gateways: [TestGateway; 2],
    server: RedisServer,
}

impl Peers {
    /// Starts two Java services with these versions of Redisson, and two gateways.
    async fn start(version: &str, other: &str, limiters: &[&str]) -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os("REDISSON")?);
        let server = RedisServer::start()?;
        let limit = |name: &&str| {
            format!(
                "  - {{ name: {name}, match: {{ path: /{name} }}, upstream: echo, limits: [{{ name: l, key: {name}, \
                 adopt: true, on_store_failure: deny }}] }}\n"
            )
        };
        let routes: String = limiters.iter().map(limit).collect();
        let upstreams = "upstreams: { echo: { targets: [builtin:echo] } }";
        let rules = format!("store: {}\n{upstreams}\nroutes:\n{routes}", server.rule());
        let gateways = [TestGateway::start(&rules), TestGateway::start(&rules)];
        let java = Java::start(&folder.join(version), &server.url()).await;
        let other = Java::start(&folder.join(other), &server.url()).await;
        Some(Self { java, other, gateways, server })
    }

    fn library(&self, name: &str) -> RateLimiter {
        RateLimiter::new(self.server.store(), name).expect("a limiter")
    }

    async fn status(&self, gateway: usize, name: &str) -> u16 {
        self.gateways[gateway].get(&format!("/{name}"), "").await.status()
    }

    /// Sends requests until one has this status: a gateway caches a refusal for 100 ms.
    async fn wait_for_status(&self, gateway: usize, name: &str, status: u16) -> u16 {
        soon(async { while self.status(gateway, name).await != status {} }).await;
        status
    }
}

fn rate(mode: Mode, rate: u64, interval: u64) -> RateConfig {
    RateConfig::new(mode, rate, Duration::from_millis(interval)).expect("a configuration")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_visible_on_all_sides() {
    for (version, other) in [("3.17.0", "3.50.0"), ("4.7.0", "3.17.0"), ("3.50.0", "4.7.0")] {
        let Some(mut peers) = Peers::start(version, other, &["one", "slow"]).await else { return };
        permits_are_shared(&mut peers).await;
        rates_and_expiries_are_shared(&mut peers).await;
        waiting_callers_are_served(&mut peers).await;
        each_client_has_its_own_bucket(&mut peers).await;
    }
}

async fn permits_are_shared(peers: &mut Peers) {
    let library = peers.library("one");
    assert_eq!(peers.java.run("one trySetRate OVERALL 5 3600000").await, "true");
    assert_eq!(peers.other.run("one trySetRate OVERALL 9 1000").await, "false");
    assert_eq!(library.try_set_rate(&rate(Mode::Overall, 9, 1_000)).await, Ok(TrySetRate::Kept));
    assert_eq!(library.config().await, Ok(Some(rate(Mode::Overall, 5, HOUR))));
    assert_eq!(peers.java.run("one tryAcquire 1").await, "true");
    assert_eq!(peers.status(0, "one").await, 200);
    assert_eq!(peers.other.run("one tryAcquire 1 1000").await, "true");
    assert_eq!(granted(&library, 1).await, Ok(true));
    assert_eq!(peers.java.run("one availablePermits").await, "1");
    assert_eq!(
        (peers.other.run("one availablePermits").await.as_str(), library.available_permits().await),
        ("1", Ok(1))
    );
    assert_eq!(peers.status(1, "one").await, 200);
    assert_eq!(peers.java.run("one tryAcquire 1").await, "false");
    assert_eq!(peers.other.run("one tryAcquire 1 50").await, "false");
    assert_eq!((peers.status(0, "one").await, peers.status(1, "one").await), (429, 429));
    assert_eq!(library.try_acquire_for(1, Duration::from_millis(50)).await, Ok(false));
    assert_eq!(library.release(2).await, Ok(2));
    assert_eq!(peers.other.run("one availablePermits").await, "2");
    assert_eq!(peers.java.run("one tryAcquire 1").await, "true");
    assert_eq!((peers.wait_for_status(0, "one", 200).await, peers.status(1, "one").await), (200, 429));
}

async fn rates_and_expiries_are_shared(peers: &mut Peers) {
    let library = peers.library("one");
    assert_eq!(library.update_rate(&rate(Mode::Overall, 8, HOUR), PermitsInUse::Keep).await, Ok(true));
    assert_eq!(peers.java.run("one getConfig").await, "OVERALL 8 3600000");
    assert_eq!(peers.other.run("one availablePermits").await, "3");
    let updated = peers.java.run("one updateRate OVERALL 9 3600000").await;
    assert!(updated == "true" || updated == "absent", "{updated}");
    if updated == "true" {
        assert_eq!((library.available_permits().await, peers.wait_for_status(0, "one", 200).await), (Ok(4), 200));
    }
    assert_eq!(peers.java.run("one setRate OVERALL 2 3600000").await, "done");
    assert_eq!((library.available_permits().await, peers.wait_for_status(0, "one", 200).await), (Ok(2), 200));
    assert_eq!(peers.other.run("one availablePermits").await, "1");

    let remains = async |java: &mut Java| java.run("one remainTimeToLive").await.parse::<i64>().expect("a time");
    assert_eq!(peers.java.run("one expire 60000").await, "true");
    assert!((1..=60_000).contains(&remains(&mut peers.other).await));
    assert_eq!(library.clear_expire().await, Ok(true));
    assert_eq!(remains(&mut peers.other).await, -1);
    assert_eq!(library.expire(Duration::from_secs(60)).await, Ok(true));
    assert!((1..=60_000).contains(&remains(&mut peers.java).await));
    assert_eq!(peers.other.run("one clearExpire").await, "true");
    assert_eq!(remains(&mut peers.java).await, -1);
    assert_eq!(peers.java.run("one delete").await, "true");
    assert_eq!((library.exists().await, peers.wait_for_status(1, "one", 503).await), (Ok(false), 503));
    assert_eq!(library.try_set_rate(&rate(Mode::Overall, 1, HOUR)).await, Ok(TrySetRate::Set));
    assert_eq!((peers.wait_for_status(1, "one", 200).await, peers.status(0, "one").await), (200, 429));
    assert_eq!(library.delete().await, Ok(true));
    assert!(peers.java.run("one tryAcquire 1").await.starts_with("error"));
}

async fn waiting_callers_are_served(peers: &mut Peers) {
    let (library, clock) = (peers.library("slow"), SystemClock::new());
    assert_eq!(peers.java.run("slow trySetRate OVERALL 1 1000").await, "true");
    let since = clock.now();
    assert_eq!(peers.status(0, "slow").await, 200);
    assert_eq!(peers.java.run("slow acquire 1").await, "done");
    assert_eq!(library.acquire(1).await, Ok(()));
    assert_eq!(peers.other.run("slow tryAcquire 1 5000").await, "true");
    let passed = clock.now().millis_since(since);
    assert!(passed >= 2_900, "four permits at one per second took only {passed} ms");
}

async fn each_client_has_its_own_bucket(peers: &mut Peers) {
    let library = peers.library("each");
    assert_eq!(library.set_rate(&rate(Mode::PerClient, 2, HOUR)).await, Ok(()));
    assert_eq!(peers.java.run("each tryAcquire 2").await, "true");
    assert_eq!(peers.other.run("each tryAcquire 2").await, "true");
    assert_eq!(peers.java.run("each tryAcquire 1").await, "false");
    assert_eq!((granted(&library, 2).await, granted(&library, 1).await), (Ok(true), Ok(false)));
    assert_eq!(peers.java.run("each getConfig").await, "PER_CLIENT 2 3600000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permit_released_by_java_is_granted_once() {
    let Some(mut peers) = Peers::start("4.7.0", "3.50.0", &["released"]).await else { return };
    assert_eq!(peers.java.run("released trySetRate OVERALL 2 60000").await, "true");
    assert_eq!(peers.java.run("released tryAcquire 1").await, "true");
    assert_eq!(peers.other.run("released tryAcquire 1").await, "true");
    assert_eq!((peers.status(0, "released").await, peers.status(1, "released").await), (429, 429));
    assert_eq!(peers.java.run("released release 1").await, "done");
    assert_eq!((peers.wait_for_status(1, "released", 200).await, peers.status(0, "released").await), (200, 429));
    assert_eq!(peers.other.run("released tryAcquire 1").await, "false");
    assert_eq!(peers.java.run("released release 2").await, "done");
    assert_eq!(peers.library("released").available_permits().await, Ok(2));
    assert_eq!(peers.other.run("released tryAcquire 2").await, "true");
    assert_eq!(peers.status(0, "released").await, 429);
}

/// Collects the grants of all programs, and checks them together against the rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[expect(clippy::print_stdout, reason = "prints measurements")]
async fn no_window_exceeds_the_rate_under_load() {
    const SPAN: u64 = 4_000;
    for (version, other, rate) in [("3.17.0", "4.7.0", 50), ("3.50.0", "3.17.0", 500), ("4.7.0", "3.50.0", 2_000)] {
        let Some(mut peers) = Peers::start(version, other, &["load"]).await else { return };
        peers.java.run(&format!("load trySetRate OVERALL {rate} 1000")).await;
        let library = peers.library("load");
        let (one, two) = (&peers.gateways[0], &peers.gateways[1]);
        let (java, other, first, second, library) = tokio::join!(
            peers.java.load("load", 8, SPAN),
            peers.other.load("load", 8, SPAN),
            load_gateway(one, SPAN),
            load_gateway(two, SPAN),
            load_library(&library, SPAN),
        );
        let shares = [java.len(), other.len(), first.len(), second.len(), library.len()];
        let all: Vec<Grant> = [java, other, first, second, library].concat();
        // The store counts windows in milliseconds, so the window is 1 ms shorter.
        let fullest = fullest_window(all, 999_000);
        println!(
            "rate {rate} per second: {fullest} certain grants in the fullest window; grants in {SPAN} ms: {shares:?}"
        );
        assert!(fullest <= rate, "{fullest} of {rate}");
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}: a program got no permit");
        // The first interval may end before all programs send requests, and a slow machine does not use up higher rates.
        let least = 3 * rate.min(50);
        assert!(shares.iter().sum::<usize>() >= least, "{shares:?}: fewer than {least}");
    }
}

/// Sends requests to a gateway on four connections.
async fn load_gateway(gateway: &TestGateway, millis: u64) -> Vec<Grant> {
    let ask = async || {
        let (mut client, clock, mut grants) = (gateway.client().await, SystemClock::new(), Vec::new());
        let end = clock.now().plus_millis(millis);
        while clock.now() < end {
            let since = checker::micros();
            if get(&mut client, "/load", "").await.status() == 200 {
                grants.push((since, checker::micros()));
            }
        }
        grants
    };
    let [a, b, c, d] = std::array::from_fn(|_| ask());
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    [a, b, c, d].concat()
}

/// Takes permits with the library.
async fn load_library(library: &RateLimiter, millis: u64) -> Vec<Grant> {
    let (clock, mut grants) = (SystemClock::new(), Vec::new());
    let end = clock.now().plus_millis(millis);
    while clock.now() < end {
        let since = checker::micros();
        if library.try_acquire(1).await.expect("a decision").granted {
            grants.push((since, checker::micros()));
        }
    }
    grants
}
