//! Concurrent requests share calls, with the same decisions as separate requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use deadpool_redis::redis::{Commands, cmd};
use proptest::prelude::*;
use tidegate::internals::ReplayStore;
use tidegate::{Clock, ManualClock, Metrics, Store, Timestamp};
use tidegate_limit::clock::Stopwatch;
use tidegate_limit::{Algorithm, Quota, examples};
use tidegate_rules::charge::{Charge, ChargeKind, Outcome};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};
use tidegate_store::Memory;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::laws::{START, config};
use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::redisson::Peer;
use crate::support::{adopted, charge_of, overall, per_client};

const INTERVAL: u64 = 60_000;

/// Opens a store with one connection, so that requests are decided in order.
fn store(server: &RedisServer) -> Store {
    Store::open(&settings(server), Arc::new(Metrics::new())).expect("a store")
}

/// Opens such a store with a manual clock.
fn replay_store(server: &RedisServer) -> ReplayStore {
    ReplayStore::open(&settings(server)).expect("a store")
}

fn settings(server: &RedisServer) -> StoreSettings {
    let (url, timeout) = (RedisUrl::new(server.url()), std::time::Duration::from_secs(60));
    StoreSettings::Redis(RedisSettings { pool_size: 1, timeout, ..RedisSettings::new(url) })
}

/// Creates a runtime on which no call is sent before all requests are queued.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Sends all requests at once, and returns the outcomes in the order of the requests.
fn together(runtime: &Runtime, store: &Store, requests: &[Vec<Charge>]) -> Vec<Outcome> {
    runtime.block_on(async {
        let take = |charges: Vec<Charge>| {
            let store = store.clone();
            tokio::spawn(async move { store.take(&charges).await })
        };
        let asked: Vec<_> = requests.iter().cloned().map(take).collect();
        let mut outcomes = Vec::with_capacity(asked.len());
        for answer in asked {
            outcomes.push(answer.await.expect("a task").expect("a decision"));
        }
        outcomes
    })
}

/// Returns quotas of all algorithms; with a rate above 512, grants share entries.
fn quotas() -> Vec<Quota> {
    let quota = |rate, algorithm| Quota::new(rate, INTERVAL, algorithm).expect("a quota");
    examples(4).map(|algorithm| quota(5, algorithm)).chain([quota(700, Algorithm::TokenBucket)]).collect()
}

/// The charges of one request: the buckets, the clients, the permits, whether they are shadows, and their kinds.
type Asks = Vec<(usize, u8, u32, bool, ChargeKind)>;

fn asks(buckets: usize) -> impl Strategy<Value = Asks> {
    let permits = prop_oneof![8 => Just(1), 2 => 0..=3_u32, 1 => 300..=701_u32];
    let checks = prop_oneof![Just(ChargeKind::Check), Just(ChargeKind::NoDebt)];
    let kind = prop_oneof![6 => Just(ChargeKind::Take), 1 => checks, 1 => Just(ChargeKind::Unconditional)];
    let ask = (0..buckets, 0..3_u8, permits, prop::bool::weighted(0.15), kind);
    prop::collection::vec(ask, 1..=3).prop_map(|mut asks| {
        asks.sort_by_key(|(bucket, ..)| *bucket);
        asks.dedup_by_key(|(bucket, ..)| *bucket);
        asks
    })
}

/// Generates concurrent requests, many of them equal, and the time since the previous ones, which is negative if the
/// clock goes back.
fn round(buckets: usize) -> impl Strategy<Value = (i64, Vec<Asks>)> {
    let passes = prop_oneof![3 => Just(0), 5 => 0..=20_000_i64, 2 => 0..=120_000_i64, 1 => -90_000..=0_i64];
    let alike = (asks(buckets), 1..=9_usize).prop_map(|(asks, count)| vec![asks; count]);
    (passes, prop::collection::vec(alike, 1..8).prop_map(|groups| groups.concat()))
}

#[test]
fn concurrent_requests_are_decided_like_sequential_ones() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, redis, quotas) = (runtime(), replay_store(&server), quotas());
    let outcome = config(96).run(&prop::collection::vec(round(quotas.len()), 1..12), |rounds| {
        // With the buckets of all cases, the store would remove those that are full now, and the clock may go back.
        let clock = Arc::new(ManualClock::default());
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
        let (name, mut now) = (fresh_name(), START);
        for (passes, requests) in rounds {
            now = now.saturating_add_signed(passes);
            let charge = |&(bucket, client, permits, shadow, kind): &(usize, u8, u32, bool, ChargeKind)| Charge {
                shadow,
                kind,
                ..charge_of(&format!("{name}:{bucket}"), Some(&[client]), quotas[bucket], permits)
            };
            let requests: Vec<Vec<Charge>> = requests.iter().map(|asks| asks.iter().map(charge).collect()).collect();
            clock.set(Timestamp::from_millis(now));
            redis.set_time(Timestamp::from_millis(now));
            let answers = together(&runtime, &redis.store, &requests);
            for (charges, answer) in requests.iter().zip(&answers) {
                let alone = memory.take(charges).expect("a decision");
                prop_assert_eq!(&alone, answer, "{:?}", charges);
            }
            // An undone request leaves no trace, even if others are undone with it.
            let made = answers[0].granted_charges(&requests[0]);
            memory.give_back(&made);
            runtime.block_on(redis.store.give_back(&made)).expect("given back");
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Regression test: the first bucket of a limiter was decided by the rate of the previous limiter in the same call.
#[test]
fn adjacent_buckets_use_their_own_limiters() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, redis) = (runtime(), store(&server));
    let clients = [(b"a", 5), (b"b", 5), (b"c", 700), (b"d", 9)];
    for shared in [false, true] {
        let request = |(client, rate): (&[u8; 1], u64)| {
            let own = per_client(&format!("{{r}}:{rate}:{shared}"), client, rate, INTERVAL, 1);
            let all = overall("{r}:all", 1_000, INTERVAL, 1);
            if shared { vec![all, own] } else { vec![own] }
        };
        let answers = together(&runtime, &redis, &clients.map(request));
        let left = answers.iter().map(|answer| answer.decisions.last().expect("a decision").remaining);
        assert_eq!(left.collect::<Vec<_>>(), [4, 4, 699, 8], "with a shared bucket: {shared}");
    }
}

#[test]
fn thousand_requests_for_one_bucket_share_few_calls() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, redis) = (runtime(), store(&server));
    runtime.block_on(redis.take(&[overall("warm-up", 1, 1_000, 1)])).expect("a decision");
    let before = server.decision_calls();
    let requests = vec![vec![overall("hot", 100, 3_600_000, 1)]; 1_000];
    let answers = together(&runtime, &redis, &requests);
    assert!(answers[..100].iter().all(Outcome::granted) && !answers[100..].iter().any(Outcome::granted));
    let remaining: Vec<u32> = answers[..100].iter().map(|answer| answer.decisions[0].remaining).collect();
    assert_eq!(remaining, (0..100).rev().collect::<Vec<u32>>());
    assert!(server.decision_calls() - before <= 2, "{} calls", server.decision_calls() - before);
}

#[test]
fn clients_share_calls_of_at_most_64_buckets() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, redis) = (runtime(), store(&server));
    runtime.block_on(redis.take(&[overall("warm-up", 1, 1_000, 1)])).expect("a decision");
    let before = server.decision_calls();
    let total = Arc::clone(&overall("all", 700, 60_000, 1).limiter);
    let request = |client: u32| {
        let own = per_client("own", &client.to_be_bytes(), 1, 60_000, 1);
        vec![Charge::new(Arc::clone(&total), None, 1), own]
    };
    let requests: Vec<_> = (0..1_000).map(request).collect();
    let answers = together(&runtime, &redis, &requests);
    assert_eq!(answers.iter().filter(|answer| answer.granted()).count(), 700);
    let made = server.decision_calls() - before;
    assert!((15..=18).contains(&made), "{made} calls for 1000 clients");
}

/// Redis is stopped, so that it sends no reply before all requests have arrived.
#[tokio::test]
async fn later_requests_share_a_call_while_two_are_in_flight() {
    let Some(server) = RedisServer::start() else { return };
    let (store, charges) = (store(&server), [overall(&fresh_name(), 10, INTERVAL, 1)]);
    let ask = || {
        let (store, charges) = (store.clone(), charges.clone());
        tokio::spawn(async move { store.take(&charges).await.expect("a decision").decisions[0].remaining })
    };
    ask().await.expect("connected");
    let before = server.decision_calls();
    server.signal("STOP");
    let mut asked = Vec::new();
    for _ in 0..5 {
        asked.push(ask());
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    server.signal("CONT");
    let mut remaining = Vec::new();
    for answer in asked {
        remaining.push(answer.await.expect("a task"));
    }
    assert_eq!(server.decision_calls() - before, 3, "the first, the second, and the rest");
    assert_eq!(remaining, [8, 7, 6, 5, 4], "decided in the order of arrival");
}

#[tokio::test]
async fn cached_refusal_needs_one_redis_call_per_second() {
    let Some(server) = RedisServer::start() else { return };
    let limits = "[{ name: l, mode: OVERALL, rate: 1, interval: 1h }, { name: own, mode: PER_CLIENT, client: 'header:k', rate: 5, interval: 1h }]";
    let gateway = TestGateway::start(&format!(
        "store: {}
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: echo, limits: {limits} }}]\n",
        server.rule()
    ));
    assert_eq!(gateway.get("/", "k: 0\r\n").await.status(), 200);
    let (before, began) = (server.decision_calls(), Stopwatch::start());
    for client in 0..500 {
        let refused = gateway.get("/", &format!("k: {client}\r\n")).await;
        assert_eq!((refused.status(), refused.field("retry-after").is_some()), (429, true));
        assert!(refused.text().contains(r#""violated-policies":["l"]"#), "{}", refused.text());
    }
    let (made, seconds) = (server.decision_calls() - before, began.elapsed().as_secs());
    assert!(made <= 2 + seconds, "{made} calls in {seconds} s");
    assert!(gateway.counter("tidegate_store_known_refusals_total").await >= 500 - (2 + seconds));
}

/// An invalid value counts as a missing bucket, and does not affect other buckets.
#[test]
fn invalid_bucket_does_not_affect_others_of_its_call() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, store, mut redis) = (runtime(), replay_store(&server), server.connection());
    store.set_time(Timestamp::from_millis(START));
    let request = |client: &[u8]| vec![overall("all", 50, 3_600_000, 1), per_client("own", client, 5, 3_600_000, 2)];
    let clients = [&b"a"[..], b"b", b"c"];
    let ask = || together(&runtime, &store.store, &clients.map(request));
    assert!(ask().iter().all(Outcome::granted));
    let keys: Vec<String> = redis.keys("own:*").expect("keys");
    assert_eq!(keys.len(), 3);
    for tampered in [&b""[..], b"nonsense", b"\x03 a format that nobody has", b"\x01short", b"\x02neither"] {
        cmd("SET").arg(&keys[1]).arg(tampered).arg("KEEPTTL").exec(&mut redis).expect("set");
        let answers = ask();
        let mut left: Vec<_> = answers.iter().map(|one| one.decisions[1].remaining).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 1, 3], "{tampered:?}");
        for (answer, client) in answers.iter().zip(clients) {
            let made = answer.granted_charges(&request(client));
            runtime.block_on(store.store.give_back(&made)).expect("given back");
        }
    }
    cmd("DEL").arg(&keys[1]).exec(&mut redis).expect("deleted");
    cmd("HSET").arg(&keys[1]).arg("rate").arg(1).exec(&mut redis).expect("set");
    assert!(ask().iter().all(Outcome::granted), "a key of another type");
}

/// Each rule counts its charges within a call; two rules in one call would not see each other's charges.
#[test]
fn two_rules_for_one_bucket_use_separate_calls() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, redis) = (runtime(), store(&server));
    let request = |number: u64| vec![overall("lim", 10 + number % 2, 3_600_000, 1)];
    let answers = together(&runtime, &redis, &(0..40).map(request).collect::<Vec<_>>());
    assert_eq!(answers.iter().filter(|answer| answer.granted()).count(), 11);
}

/// Regression test: each request had its own call, which used up Redis's time.
#[test]
fn concurrent_requests_for_a_shared_limiter_share_calls() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, redis) = (runtime(), store(&server));
    let mut peer = Peer::new(server.connection(), "java", "");
    peer.configure(0, 500, 3_600_000, 0);
    let requests: Vec<_> = (0..1_000).map(|_| vec![adopted("java", None, None, 1)]).collect();
    assert!(runtime.block_on(redis.take(&requests[0])).expect("a decision").granted());
    let before = server.decision_calls();
    let answers = together(&runtime, &redis, &requests);
    assert_eq!(answers.iter().filter(|answer| answer.granted()).count(), 499);
    assert!(server.decision_calls() - before <= 20, "{} calls", server.decision_calls() - before);
    assert_eq!(peer.counter(), Some(0));
}

/// For floods of all kinds: a request for another limit does not wait for thousands of queued requests.
#[test]
fn flood_of_one_limit_does_not_delay_other_limits() {
    let Some(server) = RedisServer::start() else { return };
    let (runtime, store) = (runtime(), store(&server));
    for name in ["java", "other java"] {
        Peer::new(server.connection(), name, "").configure(0, 1_000_000, 3_600_000, 0);
    }
    let one_client = |number: u32| vec![per_client("{r1}:each", &number.to_le_bytes(), 5, 3_600_000, 1)];
    type Flood = Box<dyn Fn(u32) -> Vec<Charge>>;
    let floods: [(&str, Flood); 4] = [
        ("many clients", Box::new(one_client)),
        ("one bucket", Box::new(|_| vec![overall("{r2}:all", 1_000_000, 3_600_000, 1)])),
        ("costs that differ", Box::new(|number| vec![overall("{r3}:all", 1_000_000, 3_600_000, number % 90 + 1)])),
        ("a shared limiter", Box::new(|number| vec![adopted("java", None, None, number % 90 + 1)])),
    ];
    for (kind, flood) in floods {
        let left = runtime.block_on(async {
            let (mut all, waiting) = (JoinSet::new(), Arc::new(AtomicUsize::new(20_000)));
            for number in 0..20_000 {
                let (store, charges, waiting) = (store.clone(), flood(number), Arc::clone(&waiting));
                all.spawn(async move {
                    store.take(&charges).await.expect("a decision");
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    None
                });
            }
            for charges in [vec![overall("{r4}:all", 50, 3_600_000, 1)], vec![adopted("other java", None, None, 1)]] {
                let (store, waiting) = (store.clone(), Arc::clone(&waiting));
                all.spawn(async move {
                    store.take(&charges).await.expect("a decision");
                    Some(waiting.load(Ordering::Relaxed))
                });
            }
            all.join_all().await.into_iter().flatten().collect::<Vec<_>>()
        });
        assert_eq!(left.len(), 2);
        assert!(
            left.iter().all(|left| *left > 5_000),
            "{left:?} requests were queued ({kind}) when other limits had decided"
        );
    }
}
