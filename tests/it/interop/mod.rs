//! Real Java services, two gateways and the library share limiters of one Redis. `tests/interop/run` fetches Redisson and
//! names its folder in `REDISSON`; without it nothing is tested here.

mod checker;
mod java;

use std::path::PathBuf;
use std::time::Duration;

use tidegate::RateLimiter;
use tidegate::clock::{Clock, SystemClock};
use tidegate::limit::{Mode, RateConfig};
use tidegate::rate_limiter::Usage;

use self::checker::{Grant, fullest_window};
use self::java::Java;
use crate::support::gateway::{TestGateway, get};
use crate::support::granted;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

const HOUR: u64 = 3_600_000;

/// Everybody who shares the limiters.
struct World {
    java: Java,
    other: Java,
    gateways: [TestGateway; 2],
    server: RedisServer,
}

impl World {
    /// Two Java services with these versions of Redisson, if there are any.
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

    /// Asks until it says so: a gateway believes a refusal for 100 ms.
    async fn becomes(&self, gateway: usize, name: &str, status: u16) -> u16 {
        soon(async { while self.status(gateway, name).await != status {} }).await;
        status
    }
}

fn rate(mode: Mode, rate: u64, interval: u64) -> RateConfig {
    RateConfig::new(mode, rate, Duration::from_millis(interval)).expect("a configuration")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_on_one_side_is_seen_on_the_others() {
    for (version, other) in [("3.17.0", "3.50.0"), ("4.7.0", "3.17.0"), ("3.50.0", "4.7.0")] {
        let Some(mut world) = World::start(version, other, &["one", "slow"]).await else { return };
        permits_are_shared(&mut world).await;
        rates_and_lives_are_shared(&mut world).await;
        who_waits_is_served(&mut world).await;
        each_client_has_its_own(&mut world).await;
    }
}

async fn permits_are_shared(world: &mut World) {
    let library = world.library("one");
    assert_eq!(world.java.says("one trySetRate OVERALL 5 3600000").await, "true");
    assert_eq!(world.other.says("one trySetRate OVERALL 9 1000").await, "false");
    assert_eq!(library.try_set_rate(&rate(Mode::Overall, 9, 1_000)).await, Ok(false));
    assert_eq!(library.config().await, Ok(Some(rate(Mode::Overall, 5, HOUR))));
    assert_eq!(world.java.says("one tryAcquire 1").await, "true");
    assert_eq!(world.status(0, "one").await, 200);
    assert_eq!(world.other.says("one tryAcquire 1 1000").await, "true");
    assert_eq!(granted(&library, 1).await, Ok(true));
    assert_eq!(world.java.says("one availablePermits").await, "1");
    assert_eq!(
        (world.other.says("one availablePermits").await.as_str(), library.available_permits().await),
        ("1", Ok(1))
    );
    assert_eq!(world.status(1, "one").await, 200);
    assert_eq!(world.java.says("one tryAcquire 1").await, "false");
    assert_eq!(world.other.says("one tryAcquire 1 50").await, "false");
    assert_eq!((world.status(0, "one").await, world.status(1, "one").await), (429, 429));
    assert_eq!(library.try_acquire_for(1, Duration::from_millis(50)).await, Ok(false));
    assert_eq!(library.release(2).await, Ok(2));
    assert_eq!(world.other.says("one availablePermits").await, "2");
    assert_eq!(world.java.says("one tryAcquire 1").await, "true");
    assert_eq!((world.becomes(0, "one", 200).await, world.status(1, "one").await), (200, 429));
}

async fn rates_and_lives_are_shared(world: &mut World) {
    let library = world.library("one");
    assert_eq!(library.update_rate(&rate(Mode::Overall, 8, HOUR), Usage::Keep).await, Ok(true));
    assert_eq!(world.java.says("one getConfig").await, "OVERALL 8 3600000");
    assert_eq!(world.other.says("one availablePermits").await, "3");
    let updated = world.java.says("one updateRate OVERALL 9 3600000").await;
    assert!(updated == "true" || updated == "absent", "{updated}");
    if updated == "true" {
        assert_eq!((library.available_permits().await, world.becomes(0, "one", 200).await), (Ok(4), 200));
    }
    assert_eq!(world.java.says("one setRate OVERALL 2 3600000").await, "done");
    assert_eq!((library.available_permits().await, world.becomes(0, "one", 200).await), (Ok(2), 200));
    assert_eq!(world.other.says("one availablePermits").await, "1");

    let remains = async |java: &mut Java| java.says("one remainTimeToLive").await.parse::<i64>().expect("a time");
    assert_eq!(world.java.says("one expire 60000").await, "true");
    assert!((1..=60_000).contains(&remains(&mut world.other).await));
    assert_eq!(library.clear_expire().await, Ok(true));
    assert_eq!(remains(&mut world.other).await, -1);
    assert_eq!(library.expire(Duration::from_secs(60)).await, Ok(true));
    assert!((1..=60_000).contains(&remains(&mut world.java).await));
    assert_eq!(world.other.says("one clearExpire").await, "true");
    assert_eq!(remains(&mut world.java).await, -1);
    assert_eq!(world.java.says("one delete").await, "true");
    assert_eq!((library.exists().await, world.becomes(1, "one", 503).await), (Ok(false), 503));
    assert_eq!(library.try_set_rate(&rate(Mode::Overall, 1, HOUR)).await, Ok(true));
    assert_eq!((world.becomes(1, "one", 200).await, world.status(0, "one").await), (200, 429));
    assert_eq!(library.delete().await, Ok(true));
    assert!(world.java.says("one tryAcquire 1").await.starts_with("error"));
}

async fn who_waits_is_served(world: &mut World) {
    let (library, clock) = (world.library("slow"), SystemClock::new());
    assert_eq!(world.java.says("slow trySetRate OVERALL 1 1000").await, "true");
    let since = clock.now();
    assert_eq!(world.status(0, "slow").await, 200);
    assert_eq!(world.java.says("slow acquire 1").await, "done");
    assert_eq!(library.acquire(1).await, Ok(()));
    assert_eq!(world.other.says("slow tryAcquire 1 5000").await, "true");
    let passed = clock.now().millis_since(since);
    assert!(passed >= 2_900, "four permits of one a second after {passed} ms");
}

async fn each_client_has_its_own(world: &mut World) {
    let library = world.library("each");
    assert_eq!(library.set_rate(&rate(Mode::PerClient, 2, HOUR)).await, Ok(()));
    assert_eq!(world.java.says("each tryAcquire 2").await, "true");
    assert_eq!(world.other.says("each tryAcquire 2").await, "true");
    assert_eq!(world.java.says("each tryAcquire 1").await, "false");
    assert_eq!((granted(&library, 2).await, granted(&library, 1).await), (Ok(true), Ok(false)));
    assert_eq!(world.java.says("each getConfig").await, "PER_CLIENT 2 3600000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_java_service_releases_is_granted_once_by_whoever_asks_first() {
    let Some(mut world) = World::start("4.7.0", "3.50.0", &["released"]).await else { return };
    assert_eq!(world.java.says("released trySetRate OVERALL 2 60000").await, "true");
    assert_eq!(world.java.says("released tryAcquire 1").await, "true");
    assert_eq!(world.other.says("released tryAcquire 1").await, "true");
    assert_eq!((world.status(0, "released").await, world.status(1, "released").await), (429, 429));
    assert_eq!(world.java.says("released release 1").await, "done");
    assert_eq!((world.becomes(1, "released", 200).await, world.status(0, "released").await), (200, 429));
    assert_eq!(world.other.says("released tryAcquire 1").await, "false");
    assert_eq!(world.java.says("released release 2").await, "done");
    assert_eq!(world.library("released").available_permits().await, Ok(2));
    assert_eq!(world.other.says("released tryAcquire 2").await, "true");
    assert_eq!(world.status(0, "released").await, 429);
}

/// Every asker's grants, as the time between which each was made, and all of them together held against the law.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[expect(clippy::print_stdout, reason = "what was measured is told")]
async fn under_load_no_window_holds_more_than_the_rate() {
    const SPAN: u64 = 4_000;
    for (version, other, rate) in [("3.17.0", "4.7.0", 50), ("3.50.0", "3.17.0", 500), ("4.7.0", "3.50.0", 2_000)] {
        let Some(mut world) = World::start(version, other, &["load"]).await else { return };
        world.java.says(&format!("load trySetRate OVERALL {rate} 1000")).await;
        let library = world.library("load");
        let (one, two) = (&world.gateways[0], &world.gateways[1]);
        let (java, other, first, second, library) = tokio::join!(
            world.java.load("load", 8, SPAN),
            world.other.load("load", 8, SPAN),
            through(one, SPAN),
            through(two, SPAN),
            by(&library, SPAN),
        );
        let shares = [java.len(), other.len(), first.len(), second.len(), library.len()];
        let all: Vec<Grant> = [java, other, first, second, library].concat();
        // Windows are counted in milliseconds of the store's clock.
        let fullest = fullest_window(all, 999_000);
        println!(
            "rate {rate} a second: certain grants in the fullest window {fullest}; of {SPAN} ms each has {shares:?}"
        );
        assert!(fullest <= rate, "{fullest} of {rate}");
        // The first interval is over before everybody asks.
        let least = 3 * rate;
        assert!(shares.iter().sum::<usize>() >= least, "{shares:?} of at least {least}");
    }
}

/// Asks a gateway on four connections.
async fn through(gateway: &TestGateway, millis: u64) -> Vec<Grant> {
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

/// Asks by the library.
async fn by(library: &RateLimiter, millis: u64) -> Vec<Grant> {
    let (clock, mut grants) = (SystemClock::new(), Vec::new());
    let end = clock.now().plus_millis(millis);
    while clock.now() < end {
        let since = checker::micros();
        if library.try_acquire(1).await.expect("an answer").granted {
            grants.push((since, checker::micros()));
        }
    }
    grants
}
